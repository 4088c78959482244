// Command gorun starts one program as N ranks. See package launcher.
package main

import (
	"os"

	"github.com/gorun-spmd/gorun/launcher"
)

func main() { os.Exit(launcher.Main(os.Args)) }
