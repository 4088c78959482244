// Package job is the contract between the launcher and a rank: the environment
// variables by which a process learns which rank of which job it is.
//
// The launcher writes a Job with Encode into the environment of each child;
// runtime.Main reads it with Decode, and removes the variables (Names) before the
// program runs, so that a rank's own children are not ranks.
//
//	GORUN_RANK        this process's rank, 0 ≤ rank < GORUN_SIZE
//	GORUN_SIZE        number of ranks of the job
//	GORUN_LOCAL_RANK  rank among the ranks of this host, 0 ≤ local rank < GORUN_LOCAL_SIZE
//	GORUN_LOCAL_SIZE  number of ranks on this host
//	GORUN_JOB         the job's name: the same on all its ranks, different for each job
//	GORUN_ATTEMPT     0 for the first start of the job, 1 for the first restart, …
//	GORUN_CONTROL_FD  descriptor of the control segment
//	GORUN_ARENA_FD    descriptor of the shared memory in which the ranks allocate
//	GORUN_TERMINAL    columns of the terminal that shows this rank's standard error
//	GORUN_TRACE_FD    descriptor of the file in which this rank keeps its part of a trace
//	GORUN_SNAPSHOT_FD descriptor of the memory for snapshots
//
// A process without any of them is a world of one, or a rank of another launcher, which
// may have GORUN_ATTEMPT alone. A process with only some of the others is an error: a
// half-copied environment must not become a second rank 0.
package job

import (
	"fmt"
	"strconv"
	"time"
)

// The variables of the contract.
const (
	rankVar      = "GORUN_RANK"
	sizeVar      = "GORUN_SIZE"
	localRankVar = "GORUN_LOCAL_RANK"
	localSizeVar = "GORUN_LOCAL_SIZE"
	jobVar       = "GORUN_JOB"
	controlVar   = "GORUN_CONTROL_FD"
	arenaVar     = "GORUN_ARENA_FD"
	terminalVar  = "GORUN_TERMINAL"
	traceVar     = "GORUN_TRACE_FD"
	snapshotVar  = "GORUN_SNAPSHOT_FD"
	attemptVar   = AttemptVar
)

// AttemptVar is the number of restarts. Of the contract's variables it alone is there where gorun has another launcher start the ranks
// again.
const AttemptVar = "GORUN_ATTEMPT"

// TraceVar names the file for the trace of a job whose ranks gorun did not start
// itself: the ranks gather the trace, and rank 0 writes it. It is no part of the contract.
const TraceVar = "GORUN_TRACE"

// DigestVar names the file to which package train writes digests. DigestEveryVar is the number
// of steps between two of them. gorun --digest sets both. DigestOpsVar is 1 if operators have digests too.
// They are no part of the contract.
const (
	DigestVar      = "GORUN_DIGEST"
	DigestEveryVar = "GORUN_DIGEST_EVERY"
	DigestOpsVar   = "GORUN_DIGEST_OPS"
)

// ProfileVar names the folder in which each rank writes its profiles. gorun --profile sets it. It is no part of the contract.
const ProfileVar = "GORUN_PROFILE"

// SameBitsVar is the same variable as dtensor.SameBitsVar. gorun --same-bits sets it. It is no
// part of the contract.
const SameBitsVar = "GORUN_SAME_BITS"

// GoroutinesVar makes a process without a launcher run all ranks of a job as goroutines. Its
// value is the number of ranks. It is no part of the contract.
const GoroutinesVar = "GORUN_GOROUTINES"

// PlanVar makes a process run some ranks of a job without numbers and report: gorun plan. Its
// value is a forecast.Request. It is no part of the contract.
const PlanVar = "GORUN_PLAN"

// GPUsVar is the variable by which gorun --gpus tells the ranks where tensors live: "none" or
// nothing for the CPU, "auto" for GPUs if there are any, or else a list of GPUs.
const GPUsVar = "GORUN_GPUS"

// HostTimeoutVar is the time without an answer from another host after which ranks end that
// gorun did not start itself.
const HostTimeoutVar = "GORUN_HOST_TIMEOUT"

// HangTimeoutVar is the time without movement after which rank 0 ends a job whose ranks gorun did not start itself.
const HangTimeoutVar = "GORUN_HANG_TIMEOUT"

// HangTimeout is that time under gorun where nobody has given another.
const HangTimeout = 5 * time.Minute

// MaxSize is the largest number of ranks a job may have.
const MaxSize = 1 << 20

// Stopped begins the cause that the launcher gives for the end of a rank after it has told all
// ranks to end. It does not mean that the job has failed: the
// user may have interrupted it, and other ranks may still be saving.
const Stopped = "the job was told to end"

// maxFD bounds descriptor numbers: the kernel's own ceiling for RLIMIT_NOFILE is 2^30.
const maxFD = 1 << 30

// maxColumns is the widest terminal that the kernel knows.
const maxColumns = 1<<16 - 1

// A Job says who one process is among the processes of its job.
// The zero Job is not valid; Alone is the world of one.
type Job struct {
	Rank, Size           int    // 0 ≤ Rank < Size ≤ MaxSize
	LocalRank, LocalSize int    // the same among the ranks of this host; LocalSize ≤ Size
	ID                   string // the job's name; "" if no launcher started this process
	Attempt              int    // 0 for the first start, then the number of restarts
	ControlFD            int    // descriptor of the control segment; 0 if there is none
	ArenaFD              int    // descriptor of the arenas; 0 if there is none
	Columns              int    // columns of the terminal that shows standard error; 0 if none does
	TraceFD              int    // descriptor of this rank's part of a trace; 0 if there is none
	SnapshotFD           int    // descriptor of the memory for snapshots; 0 if there is none
}

// Alone returns the job of a process that no launcher started: a world of one.
func Alone() Job { return Job{Size: 1, LocalSize: 1} }

// Names returns the variables of the contract, set or not.
func Names() []string {
	return []string{rankVar, sizeVar, localRankVar, localSizeVar, jobVar, attemptVar, controlVar, arenaVar, terminalVar, traceVar,
		snapshotVar}
}

// Encode returns the contract as "NAME=value" strings for a child's environment.
// Descriptors and columns that are 0 are left out.
func Encode(j Job) []string {
	env := []string{
		rankVar + "=" + strconv.Itoa(j.Rank),
		sizeVar + "=" + strconv.Itoa(j.Size),
		localRankVar + "=" + strconv.Itoa(j.LocalRank),
		localSizeVar + "=" + strconv.Itoa(j.LocalSize),
		jobVar + "=" + j.ID,
		attemptVar + "=" + strconv.Itoa(j.Attempt),
	}
	if j.ControlFD != 0 {
		env = append(env, controlVar+"="+strconv.Itoa(j.ControlFD))
	}
	if j.ArenaFD != 0 {
		env = append(env, arenaVar+"="+strconv.Itoa(j.ArenaFD))
	}
	if j.Columns != 0 {
		env = append(env, terminalVar+"="+strconv.Itoa(j.Columns))
	}
	if j.TraceFD != 0 {
		env = append(env, traceVar+"="+strconv.Itoa(j.TraceFD))
	}
	if j.SnapshotFD != 0 {
		env = append(env, snapshotVar+"="+strconv.Itoa(j.SnapshotFD))
	}
	return env
}

// Decode reads the contract from an environment, as os.LookupEnv gives it.
// It returns Alone if none of its variables is set. Its errors name the variable
// and the value.
func Decode(env func(name string) (string, bool)) (Job, error) {
	if !anySet(env) {
		return Alone(), nil
	}
	d := decoder{env: env}
	j := Job{
		Size:      d.number(sizeVar, 1, MaxSize),
		LocalSize: d.number(localSizeVar, 1, MaxSize),
		ID:        d.text(jobVar),
		Attempt:   d.number(attemptVar, 0, 1<<31-1),
		ControlFD: d.optional(controlVar, 3, maxFD),
		ArenaFD:   d.optional(arenaVar, 3, maxFD),
		Columns:   d.optional(terminalVar, 1, maxColumns),
		TraceFD:   d.optional(traceVar, 3, maxFD),

		SnapshotFD: d.optional(snapshotVar, 3, maxFD),
	}
	j.Rank = d.number(rankVar, 0, j.Size-1)
	j.LocalRank = d.number(localRankVar, 0, j.LocalSize-1)
	if d.err == nil && j.LocalSize > j.Size {
		d.err = fmt.Errorf("job: %s=%d is more than %s=%d", localSizeVar, j.LocalSize, sizeVar, j.Size)
	}
	if d.err == nil && (j.ControlFD == 0) != (j.ArenaFD == 0) {
		d.err = fmt.Errorf("job: only one of %s and %s is set; a rank needs both or neither", controlVar, arenaVar)
	}
	if d.err != nil {
		return Job{}, d.err
	}
	return j, nil
}

// anySet reports whether some variable of the contract is set that ranks of other launchers do not have.
func anySet(env func(string) (string, bool)) bool {
	for _, name := range Names() {
		if _, ok := env(name); ok && name != AttemptVar {
			return true
		}
	}
	return false
}

// A decoder reads variables and keeps the first error.
type decoder struct {
	env func(string) (string, bool)
	err error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("job: "+format+"; unset the GORUN_ variables, or start the program with gorun", args...)
	}
}

// text returns a variable that must be set and not empty.
func (d *decoder) text(name string) string {
	s, _ := d.env(name)
	if s == "" {
		d.fail("%s is not set, but other variables of a gorun job are", name)
	}
	return s
}

// number returns a variable that must be a plain decimal number, low ≤ n ≤ high.
func (d *decoder) number(name string, low, high int) int {
	s := d.text(name)
	if d.err != nil {
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil || strconv.Itoa(n) != s {
		d.fail("%s=%q is not a number", name, s)
		return 0
	}
	if n < low || n > high {
		d.fail("%s=%d is not between %d and %d", name, n, low, high)
		return 0
	}
	return n
}

// optional is number for a variable that may be missing: it is then 0.
func (d *decoder) optional(name string, low, high int) int {
	if _, ok := d.env(name); !ok {
		return 0
	}
	return d.number(name, low, high)
}
