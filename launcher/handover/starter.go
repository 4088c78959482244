//go:build linux

package handover

import (
	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/launcher/hosts"
)

// starter is the shell script by which a rank on another host starts: $0 is its folder
// and the rest its command. Launchers differ in what they do where one of the two is
// missing: they run the ranks in some other folder, say nothing that helps, or wait for
// ever.
const starter = `cd "$0" || exit 1; exec "$@"`

// telling is the part of starter for ranks that gorun asks for words (see job.Word):
// say KIND STATUS TEXT writes one, and starts no process for it: when a rank has failed its launcher ends the shell
// too. It reports a missing folder or program, or else that the rank is there.
var telling = `host=$(uname -n); say() { printf "\036%s %s %d %d \"%s\" \"%s\"\n" "$` + job.WordVar + `" "$1" ` +
	`"` + hosts.RankExpression(hosts.Launchers()) + `" "$2" "$host" "$3" >&2; }; ` +
	`fail() { say - "$1" "$2"; exit "$1"; }; ` +
	`cd "$0" 2>/dev/null || fail 1 "there is no folder $0 on this host; make it, or name one that all hosts have with --wdir"; ` +
	`[ -f "$1" ] || fail 127 "there is no program $1 on this host; put it where all hosts have it"; ` +
	`[ -x "$1" ] || fail 126 "$1 may not be executed on this host; chmod +x it, or mount its file system without noexec"; say "@" 0 ""; `

var tellingStarter = telling + `exec "$@"`

// waitingStarter waits for the rank and tells how it ended. It is for launchers that do not
// say so of every rank: MPICH's mpiexec says little, and on several hosts waits for ever
// after a rank that exits without MPI_Finalize; srun names another rank than the one that
// ended early with exit status 0. Both send signals to the shell too, which must not end
// before the rank nor of such a signal after it: MPICH's kills all ranks, with their last
// words, if a shell was killed. ALRM is job.StopSignal. What the shell itself prints of a killed rank is
// hidden.
var waitingStarter = telling + `asked=; trap asked=1 INT TERM HUP QUIT ALRM; trap : USR1 USR2; ` +
	`exec 3>&2 2>/dev/null; (exec "$@" 2>&3 3>&-); s=$?; ` +
	`if [ "$asked" ]; then say "~" $s ""; else say "#" $s ""; fi 2>&3; ` +
	`[ $s -gt 128 ] || exit $s; trap - INT TERM HUP QUIT ALRM USR1 USR2; ulimit -c 0; kill -$((s-128)) $$; exit $s`

// shellWaits reports whether a shell waits for each rank. A file that lists several programs
// has no room for the script.
func (h *Handover) shellWaits() bool {
	return h.words != nil && h.launcher.ShellWaits && !(h.launcher.ListsPrograms && len(h.opts.Apps) > 1)
}

// throughShell reports whether a shell starts each rank.
func (h *Handover) throughShell() bool {
	return h.shellWaits() || h.remote && !(h.launcher.ListsPrograms && len(h.opts.Apps) > 1)
}

// started returns the command by which a launcher starts argv in dir through the
// starter, and the folder to start that in, which all hosts have.
func (h *Handover) started(dir string, argv []string) (all []string, from string) {
	script := starter
	switch {
	case h.shellWaits():
		script = waitingStarter
	case h.words != nil:
		script = tellingStarter
	}
	return append([]string{"sh", "-c", script, dir}, argv...), "/"
}
