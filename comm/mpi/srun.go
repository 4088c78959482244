//go:build linux && !nolibs

package mpi

import "fmt"

// unplugged is the error of a rank that srun started without the plugin by which ranks
// of lib find each other; nil if it has it, or another launcher started the rank. Open
// MPI ends such a process when it starts, with advice about how it was built.
func (lib *library) unplugged(launch Launch, env func(string) (string, bool)) error {
	if _, pmix := env("PMIX_RANK"); pmix || launch.Launcher != "slurm" {
		return nil
	}
	plugin := "pmi2"
	if lib.abi == &openMPI {
		plugin = "pmix"
	}
	return fmt.Errorf("srun started %d ranks without a plugin by which %s could connect them; "+
		"use srun --mpi=%s (srun --mpi=list says what is installed), or gorun --via slurm, which chooses one",
		launch.Size, lib.version, plugin)
}
