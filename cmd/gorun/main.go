// Command gorun starts one program as N ranks. See package launcher. Its command diff compares
// what two runs have made, see checkpoint.Diff.
package main

import (
	"os"

	"github.com/gorun-spmd/gorun/launcher"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "diff" {
		os.Exit(diff(os.Args[2:], os.Stdout, os.Stderr))
	}
	os.Exit(launcher.Main(os.Args))
}
