package options

import (
	"flag"
	"slices"
	"strings"
)

// foreign is the advice for flags of mpirun, mpiexec.hydra, srun, torchrun and similar
// programs. gorun has these flags under other names, or does not need them.
type foreign struct{ say, names string }

func foreignFlags() []foreign {
	return []foreign{
		{"gorun's is -np, without it one for each usable core", "c ntasks nproc nprocs procs ranks nproc-per-node num-processes num-procs"},
		{"give -np for all hosts together; --map-by node deals ranks out in turn",
			"N nnodes nodes npernode pernode perhost ppn grr npersocket ntasks-per-node tasks-per-node"},
		{"gorun's is --host", "H hosts w nodelist"},
		{"gorun's is --hostfile", "f F machinefile default-hostfile nodefile"},
		{"gorun's is --via " + viaNames(), "mpi launcher bootstrap rmk"},
		{"gorun's are --bind-to, core or none, and --map-by; it divides the cores among the ranks",
			"cpu-bind cpu-set cpu-list cpus-per-task cpus-per-proc cpus-per-rank rank-by rankfile bind-to-core bind-to-none bycore bynode " +
				"use-hwthread-cpus distribution numa-binding"},
		{"gorun's is --gpus", "G gres gpus-per-node gpus-per-task num-gpus"},
		{"gorun's is --tag-output", "l label prepend-rank"},
		{"gorun's are --tag-output and --output DIR", "tee r redirects"},
		{"gorun's is --output DIR", "output-filename output-directory log-dir outfile-pattern errfile-pattern error local-ranks-filter"},
		{"2>&1 behind the command joins both streams", "merge-stderr merge-stderr-to-stdout stderr-to-stdout"},
		{"leave it out: gorun passes output on line by line", "u unbuffered stream-buffering ordered-output"},
		{"gorun's is -x NAME=value", "env genv"},
		{"gorun's is -x NAME, once for each", "envlist genvlist export"},
		{"ranks have gorun's whole environment", "envall genvall"},
		{"gorun's is --wdir", "chdir D"},
		{"gorun's is --stdin", "i input"},
		{"gorun's is --timeout", "t"},
		{"gorun's is --max-restarts", "restarts"},
		{"gorun's are --max-restarts and --elastic", "enable-recovery continuous with-ft"},
		{"leave it out: a job that hangs prints the calls and stacks of its ranks", "get-stack-traces report-state-on-timeout"},
		{"gorun's is --oversubscribe", "O overcommit"},
		{"leave it out: over hosts gorun refuses more ranks than slots", "nooversubscribe no-oversubscribe"},
		{"--report-bindings and --dry-run say what gorun does",
			"v verbose info display display-map display-devel-map display-allocation print-rank-map do-not-launch"},
		{"leave it out: root may run gorun", "allow-run-as-root"},
		{"leave it out, or set OMPI_MCA_… in the environment", "mca gmca am tune"},
		{"leave it out: a rank that fails ends the job", "K kill-on-bad-exit"},
		{"leave it out: gorun has no rendezvous, ranks find each other",
			"standalone rdzv-backend rdzv-endpoint rdzv-id rdzv-conf master-addr master-port node-rank local-addr"},
		{"name the program, a Go package or .go files; for srun's -m gorun's is --map-by", "m module"},
		{"give the programs on the command line, with \":\" between them", "app multi-prog"},
		{"leave it out", "monitor-interval role start-method no-python run-path signals-to-handle event-log-handler virtual-local-rank q quiet"},
		{"give it to salloc or sbatch, and run gorun inside", "p partition A account qos J job-name mem mem-per-cpu exclusive"},
		{"give it alone: gorun --version", "version"},
	}
}

// otherwise returns the advice for a flag that gorun does not have.
func otherwise(name string, f *flag.FlagSet) string {
	plain := strings.ReplaceAll(name, "_", "-")
	if letters := strings.TrimRight(plain, "0123456789"); len(letters) <= len("ppn") {
		plain = letters // -N2
	}
	for _, g := range foreignFlags() {
		if slices.Contains(strings.Fields(g.names), plain) {
			return g.say
		}
	}
	if near, ok := nearest(name, f); ok {
		return "did you mean " + dashed(near) + "?"
	}
	return "gorun -h lists them"
}

// NearCommand returns the command of gorun that the user probably meant by name, which is no
// program.
func NearCommand(name string) (command string, ok bool) {
	for _, c := range []string{"top", "doctor", "diff", "help", "version"} {
		switch {
		case Edits(name, c) > len(c)/3:
		case c == "version":
			return "--version", true
		default:
			return c, true
		}
	}
	return "", false
}
