package launcher

import "github.com/gorun-spmd/gorun/internal/job"

// starter is the shell script by which a rank on another host starts: $0 is its folder
// and the rest its command. Launchers differ in what they do where one of the two is
// missing: they run the ranks in some other folder, say nothing that helps, or wait for
// ever.
const starter = `cd "$0" || exit 1; exec "$@"`

// tellingStarter is starter for ranks that gorun asks for words (see job.Word).
const tellingStarter = `fail() { printf "\036%s - %d %d \"%s\" \"%s\"\n" "$` + job.WordVar + `" ` +
	`"${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${SLURM_PROCID:-0}}}" "$1" "$(uname -n)" "$2" >&2; exit "$1"; }; ` +
	`cd "$0" 2>/dev/null || fail 1 "there is no folder $0 on this host; make it, or name one that all hosts have with --wdir"; ` +
	`[ -f "$1" ] && [ -x "$1" ] || fail 127 "there is no program $1 on this host; put it where all hosts have it"; ` +
	`exec "$@"`

// started returns the command by which a launcher starts argv in dir through the
// starter, and the folder to start that in, which all hosts have.
func (h *handover) started(dir string, argv []string) (all []string, from string) {
	script := starter
	if h.words != nil {
		script = tellingStarter
	}
	return append([]string{"sh", "-c", script, dir}, argv...), "/"
}
