package hosts

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Srun is srun of Slurm. It says how a rank has failed. But when a rank ends early with exit
// status 0, it kills the job and names another rank.
func Srun() Launcher {
	return Launcher{
		Name: "Slurm", Via: "slurm", Programs: []string{"srun"},
		Debian: "slurm-client", Fedora: "slurm", Use: "Slurm's, for jobs inside its allocations",
		System: Slurm, RankVar: "SLURM_PROCID", SizeVar: "SLURM_STEP_NUM_TASKS", JobNameVar: "SLURM_JOB_NAME", CPUs: slurmCPUs, MPI: slurmMPI,
		ListsPrograms: true, ShellWaits: true, StopSignal: syscall.SIGINT, // see srun: --disable-status
		Cancel: cancelScript, Failure: slurmFailure, command: (*planner).srun,
	}
}

// slurmCPUs asks Slurm for the CPUs of hosts.
func slurmCPUs(names []string, ask Ask) map[string]int {
	cpus := map[string]int{}
	for line := range strings.Lines(ask("sinfo", "--noheader", "--Node", "--format=%N %c", "--nodes="+strings.Join(names, ","))) {
		if name, number, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			cpus[name], _ = strconv.Atoi(strings.TrimSpace(number)) // 0 is as if it were not listed
		}
	}
	return cpus
}

// slurmMPI returns the value of srun --mpi. It is "" if Slurm's own default serves MPI
// programs, or else the plugin for the installed library.
func slurmMPI(env func(string) (string, bool), ask Ask, installed func(via string) bool) string {
	if kind, ok := env("SLURM_MPI_TYPE"); ok && kind != "" {
		return ""
	}
	for line := range strings.Lines(ask("scontrol", "show", "config")) {
		name, value, _ := strings.Cut(line, "=")
		if strings.TrimSpace(name) == "MpiDefault" && strings.TrimSpace(value) != "none" {
			return ""
		}
	}
	known := strings.Fields(ask("srun", "--mpi=list"))
	switch {
	case installed("openmpi") && slices.Contains(known, "pmix"):
		return "pmix"
	case slices.Contains(known, "pmi2"):
		return "pmi2"
	}
	return ""
}

// srun writes the command line of srun.
func (p *planner) srun() error {
	job := p.job
	for _, a := range job.Apps {
		if strings.Contains(a.Argv[0], "=") {
			return p.errorf("%s would be read as an option; name the program with its path", a.Argv[0])
		}
	}
	distribution := map[MapBy]string{BySlot: "block", ByNode: "cyclic"}[job.By]
	p.arg("--ntasks=" + strconv.Itoa(p.size()))
	if p.places != nil {
		var text strings.Builder // one line for each rank: its host
		for _, at := range p.places {
			h := job.Hosts[at]
			if h.User != "" || h.Port > 0 || isIPv6(h.Name) {
				return p.errorf("%s: Slurm starts ranks as you, on hosts by its own names; leave out user, port and address", h)
			}
			text.WriteString(h.Name + "\n")
		}
		distribution = "arbitrary"
		p.out.Env = append(p.out.Env, "SLURM_HOSTFILE="+p.file("hosts", text.String()))
		p.arg("--nodes=" + strconv.Itoa(len(p.sums())))
	}
	p.arg("--distribution="+distribution, "--kill-on-bad-exit=1", "--unbuffered", "--disable-status") // the last: one SIGINT is passed on
	if job.MPI != "" {
		p.arg("--mpi=" + job.MPI)
	}
	if job.Name != "" {
		p.arg("--job-name=" + job.Name)
	}
	if job.Oversubscribe {
		p.arg("--overcommit")
	}
	bind := "none"
	if job.Bind == "core" {
		bind = "cores"
	}
	if job.ReportBindings {
		bind = "verbose," + bind
	}
	p.arg("--cpu-bind=" + bind)
	if job.TagOutput {
		p.arg("--label")
	}
	if job.Output != "" {
		p.arg("--output="+job.Output+"/rank.%t.stdout", "--error="+job.Output+"/rank.%t.stderr")
	}
	p.arg("--input=" + p.stdin())
	if len(job.Apps) > 1 {
		return p.srunPrograms()
	}
	a := job.Apps[0]
	if a.Dir != "" {
		p.arg("--chdir=" + a.Dir)
	}
	for _, v := range a.Vars {
		if strings.Contains(v, "=") { // srun passes its whole environment on
			p.out.Env = append(p.out.Env, v)
		}
	}
	p.arg(a.Argv...)
	return nil
}

// srunPrograms writes the file from which srun starts several programs. The program env sets
// each one's variables and folder.
func (p *planner) srunPrograms() error {
	var text strings.Builder
	rank := 0
	for _, a := range p.job.Apps {
		var words []string
		if a.Dir != "" || len(a.Vars) > 0 {
			words = append(words, "env")
		}
		if a.Dir != "" {
			words = append(words, "-C", a.Dir)
		}
		for _, v := range a.Vars {
			if strings.Contains(v, "=") {
				words = append(words, v)
			}
		}
		words = append(words, a.Argv...)
		for _, w := range words {
			if Quote(w) != w || strings.Contains(w, "%") {
				return p.errorf("%q: srun's file of several programs cannot hold this word; use --via openmpi, or a script", w)
			}
		}
		fmt.Fprintf(&text, "%d-%d %s\n", rank, rank+a.Ranks-1, strings.Join(words, " "))
		rank += a.Ranks
	}
	p.arg("--multi-prog", p.file("programs", text.String()))
	return nil
}

// cancelScript is Launcher.Cancel of Slurm. It waits until its standard input ends, and exits if
// it has read a line. Else it cancels the Slurm job of the name $1, or inside an allocation the
// step. It sends SIGKILL first, because scancel alone leaves a job's processes KillWait, 30 s, to
// end. It looks several times: a job that srun had asked for when it was killed may appear a
// moment later, and a cancelled step stays in the list for seconds. The exit status is 1 if
// something is still listed. The signal by which Slurm ends a job comes to all processes of its
// batch script, so to this one, which has to outlive gorun.
const cancelScript = `trap '' HUP INT TERM
read -r over && exit
listed() {
	if [ "$SLURM_JOB_ID" ]; then
		squeue --noheader --steps --jobs="$SLURM_JOB_ID" --format='%j %i' | sed -n "s/^$1 //p"
	else
		squeue --noheader --name="$1" --states=PENDING,CONFIGURING,RUNNING,SUSPENDED --format=%i
	fi
}
sleep 0.1
for pause in 0.1 0.2 0.4 0.8 1.6 3.2; do
	ids=$(listed "$1") && [ -z "$ids" ] && exit 0
	[ -z "$ids" ] || { scancel --signal=KILL $ids; scancel $ids; }
	sleep $pause
done
ids=$(listed "$1") && [ -z "$ids" ]`

// slurmTask is the line in which srun says how a rank failed.
var slurmTask = regexp.MustCompile(`^srun: error: \S+: task (\d+): (?:Exited with exit code (\d+)|(.+))$`)

// slurmFailure reads a line of srun's standard error.
func slurmFailure(line []byte, _ string) (f Failure) {
	if f.Ends = bytes.HasPrefix(line, []byte("srun: error: ")); !f.Ends {
		return f
	}
	if m := slurmTask.FindSubmatch(line); m != nil {
		if m[2] != nil {
			f.set(m[1], m[2], 0)
		} else {
			f.set(m[1], []byte(slurmSignal(string(m[3]))), 128)
		}
	}
	return f
}

// slurmSignal returns the number of the signal that Slurm describes by text. It knows the
// signals by which programs usually end; for others it returns "".
func slurmSignal(text string) string {
	return map[string]string{"Killed": "9", "Segmentation fault": "11", "Aborted": "6", "Bus error": "7",
		"Floating point exception": "8", "Illegal instruction": "4", "Terminated": "15"}[text]
}
