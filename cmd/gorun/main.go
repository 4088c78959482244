// Command gorun starts one program as N ranks. See package launcher. Its command diff compares
// what two runs have made, see checkpoint.Diff. As a rank, gorun rates measures the machine for
// gorun plan --machine:
//
//	gorun -np 2 gorun rates > machine.json
package main

import (
	"os"

	"github.com/gorun-spmd/gorun/internal/rates"
	"github.com/gorun-spmd/gorun/launcher"
	"github.com/gorun-spmd/gorun/runtime"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "diff" {
		os.Exit(diff(os.Args[2:], os.Stdout, os.Stderr))
	}
	if len(os.Args) == 2 && os.Args[1] == launcher.RatesCommand {
		runtime.Main(rates.Print)
	}
	os.Exit(launcher.Main(os.Args))
}
