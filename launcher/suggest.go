package launcher

import (
	"flag"
	"strings"
)

// foreignFlags are the flags of mpirun, mpiexec.hydra, srun and torchrun that gorun
// has by another name, or does without, and what to say of them.
func foreignFlags() map[string]string {
	const ranks, host, file, label, set = "gorun's is -np", "gorun's is --host", "gorun's is --hostfile", "gorun's is --tag-output", "gorun's is -x NAME=value"
	const perHost = "give -np for all hosts together; --map-by node deals ranks out in turn"
	return map[string]string{
		"c": ranks, "ntasks": ranks, "nproc-per-node": ranks + ", without it one for each usable core", "N": perHost, "npernode": perHost,
		"ppn": perHost, "nnodes": perHost, "nodes": perHost, "ntasks-per-node": perHost,
		"H": host, "hosts": host, "w": host, "nodelist": host, "machinefile": file, "f": file, "default-hostfile": file,
		"l": label, "label": label, "prepend-rank": label, "tee": "gorun's are --tag-output and --output DIR", "output-filename": "gorun's is --output DIR", "log-dir": "gorun's is --output DIR", "outfile-pattern": "gorun's is --output DIR",
		"genv": set, "env": set, "export": set, "envall": "ranks have gorun's whole environment", "genvall": "ranks have gorun's whole environment",
		"chdir": "gorun's is --wdir", "D": "gorun's is --wdir", "i": "gorun's is --stdin",
		"allow-run-as-root": "leave it out: root may run gorun", "mca": "leave it out, or set OMPI_MCA_… in the environment",
		"standalone": "leave it out: gorun needs no other host", "rdzv-backend": "leave it out: gorun has no rendezvous",
		"master-addr": "leave it out: ranks find each other", "master-port": "leave it out: ranks find each other",
		"v": "--report-bindings and --dry-run say what gorun does", "verbose": "--report-bindings and --dry-run say what gorun does",
		"t": "gorun's is --timeout", "restarts": "gorun's is --max-restarts", "monitor-interval": "leave it out",
	}
}

// otherwise returns what to do instead of giving a flag that gorun does not have.
func otherwise(name string, f *flag.FlagSet) string {
	if said, ok := foreignFlags()[strings.ReplaceAll(name, "_", "-")]; ok {
		return said
	}
	if near, ok := nearest(name, f); ok {
		return "did you mean " + dashed(near) + "?"
	}
	return "gorun -h lists them"
}

// nearCommand returns the command of gorun that a program's name, which was not found,
// is probably meant to be.
func nearCommand(name string) (command string, ok bool) {
	for _, c := range []string{"top", "doctor", "help", "version"} {
		switch {
		case edits(name, c) > len(c)/3:
		case c == "version":
			return "--version", true
		default:
			return c, true
		}
	}
	return "", false
}
