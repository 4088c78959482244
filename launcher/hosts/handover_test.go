package hosts

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/internal/testenv"
)

// TestHandovers prints the command of every launcher for the same jobs.
func TestHandovers(t *testing.T) {
	app := func(n int) App { return App{Ranks: n, Argv: []string{"/bin/train", "-lr", "a b"}} }
	two := App{Ranks: 2, Argv: []string{"/bin/eval"}, Dir: "/data", Vars: []string{"A=1", "HOME"}}
	with := func(file string, j Job) Job {
		list, _, err := Parse("f", []byte(file), Auto)
		if err != nil {
			t.Fatal(err)
		}
		j.Hosts, j.Folder = list, "/run/job"
		return j
	}
	var got strings.Builder
	for _, c := range []struct {
		name string
		job  Job
	}{
		{"one host", Job{Apps: []App{app(4)}, Options: Options{Oversubscribe: true}}},
		{"as root, two programs", Job{Apps: []App{app(1), two}, Root: true}},
		{"two hosts", with("a slots=2 max_slots=4\nu@b slots=2", Job{Apps: []App{app(3)}})},
		{"one host is enough", with("a slots=2\nb slots=2", Job{Apps: []App{app(2)}})},
		{"by node, oversubscribed", with("a slots=1\nb slots=1",
			Job{Apps: []App{app(4)}, Bind: "core", Options: Options{By: ByNode, Oversubscribe: true}})},
		{"by node, uneven", with("a slots=1\nb slots=3", Job{Apps: []App{app(4)}, Options: Options{By: ByNode}})},
		{"no slots", with("a\nb", Job{Apps: []App{app(4)}, Options: Options{Cores: 2}})},
		{"no slots, oversubscribed", with("a max_slots=2\nb", Job{Apps: []App{app(4)}, Options: Options{Oversubscribe: true}})},
		{"host again", with("a:1\nb:1\na:1", Job{Apps: []App{app(3)}})},
		{"same label", with("n.a:1\nn.b:1", Job{Apps: []App{app(2)}})},
		{"port", with("a slots=2 port=2222", Job{Apps: []App{app(2)}})},
		{"too many", with("a:1", Job{Apps: []App{app(2)}})},
		{"output and input", Job{Apps: []App{two}, TagOutput: true, Output: "/out", ReportBindings: true, Stdin: "0", MPI: "pmix", Name: "mine"}},
		{"typed input", Job{Apps: []App{app(1)}, Stdin: "0", Typed: true}},
		{"input to all", Job{Apps: []App{two}, Stdin: "all", Program: "/opt/mpirun"}},
	} {
		for _, l := range Launchers() {
			h, err := NewHandover(l, c.job)
			fmt.Fprintf(&got, "== %s, %s\n", c.name, l.Name)
			if err != nil {
				fmt.Fprintf(&got, "error %v\n", err)
				continue
			}
			got.WriteString(h.String())
			if len(h.Hosts) < len(c.job.Hosts) {
				fmt.Fprintf(&got, "only on %v\n", h.Hosts)
			}
			for _, w := range h.Warnings {
				fmt.Fprintf(&got, "warning %s\n", w)
			}
		}
	}
	testenv.Golden(t, "testdata/handover.golden", got.String())
}

// TestBadJobs: every launcher refuses these jobs.
func TestBadJobs(t *testing.T) {
	good := App{Ranks: 1, Argv: []string{"/p"}}
	for _, j := range []Job{
		{},
		{Apps: []App{{Ranks: 0, Argv: []string{"/p"}}}},
		{Apps: []App{{Ranks: 1}}},
		{Apps: []App{{Ranks: 1, Argv: []string{"/p", ":"}}}},
		{Apps: []App{{Ranks: 1, Argv: []string{"-p"}}}},
		{Apps: []App{good}, Bind: "socket"},
		{Apps: []App{good}, Stdin: "1"},
		{Apps: []App{good}, Hosts: []Host{}},
		{Apps: []App{good}, Hosts: []Host{{Name: "fd99::2", Slots: 1, SlotsGiven: true}}},
	} {
		for _, l := range append(Launchers(), Launcher{}) {
			if h, err := NewHandover(l, j); err == nil && (j.Hosts == nil || len(j.Hosts) > 0 || l.Via != "openmpi") {
				t.Errorf("%v, %+v: %v", l, j, h)
			}
		}
	}
}

// TestQuote lets a shell read the words back.
func TestQuote(t *testing.T) {
	for _, s := range []string{"", "a", "a b", "it's", "$HOME", "a\nb", "`x`", "~", "a=b,c:d/@%+", "\\", "*", "é"} {
		out, err := exec.Command("sh", "-c", "printf %s. "+Quote(s)).Output()
		if err != nil || string(out) != s+"." {
			t.Errorf("%q quoted as %s reads as %q, %v", s, Quote(s), out, err)
		}
	}
}

// TestScript runs the script of --dry-run, with a test program in the launcher's place.
func TestScript(t *testing.T) {
	dir := t.TempDir()
	h := Handover{
		Argv: []string{"sh", "-c", `printf '%s|%s|' "$A" "$0"; cat "$1" -`, "it's", filepath.Join(dir, "a file")},
		Env:  []string{"A=x y"}, NoStdin: true,
		Files: []File{{filepath.Join(dir, "a file"), "END\n$HOME\n"}},
	}
	cmd := exec.Command("sh")
	cmd.Stdin = strings.NewReader(h.String())
	out, err := cmd.Output()
	if want := "x y|it's|END\n$HOME\n"; err != nil || string(out) != want {
		t.Errorf("script\n%sgave %q, %v; want %q", h, out, err, want)
	}
}

// TestAnotherLauncher shows that a launcher is one value. It adds flux, as far as the
// test needs it.
func TestAnotherLauncher(t *testing.T) {
	flux := Launcher{Name: "Flux", Via: "flux", Programs: []string{"flux"}, RankVar: "FLUX_TASK_RANK",
		command: func(p *planner) error {
			p.arg("run", "-n", strconv.Itoa(p.size()))
			p.arg(p.job.Apps[0].Argv...)
			return nil
		}}
	h, err := NewHandover(flux, Job{Apps: []App{{Ranks: 3, Argv: []string{"/bin/train", "-v"}}}})
	if want := "flux run -n 3 /bin/train -v </dev/null\n"; err != nil || h.String() != want {
		t.Errorf("got %q and %v, want %q", h, err, want)
	}
	all := append(Launchers(), flux)
	if got, want := Vias(all), []string{"openmpi", "mpich", "slurm", "flux"}; !slices.Equal(got, want) {
		t.Errorf("--via takes %v, want %v", got, want)
	}
	if got, want := RankExpression(all), "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${SLURM_PROCID:-${FLUX_TASK_RANK:-0}}}}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
