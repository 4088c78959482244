//go:build linux

package handover

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/launcher/exit"
	"github.com/gorun-spmd/gorun/launcher/hosts"
	"github.com/gorun-spmd/gorun/launcher/options"
	"github.com/gorun-spmd/gorun/launcher/stdio"
	"github.com/gorun-spmd/gorun/launcher/supervisor"
	"github.com/gorun-spmd/gorun/launcher/watchdog"
)

// Words are taken out of a stream however it comes in pieces, and nothing else is.
func TestWordsAreTakenOut(t *testing.T) {
	for _, c := range []struct {
		name        string
		whole       bool
		stream      string // W is a word
		want        string
		heard, held int
	}{
		{"alone", false, "W", "", 1, 0},
		{"among lines", false, "a\nWb\n", "a\nb\n", 1, 0},
		{"after a line that goes on", false, "50 %W, 60 %\n", "50 %, 60 %\n", 1, 0},
		{"no newline", false, "prompt> ", "prompt> ", 0, 0},
		{"two", false, "WW", "", 2, 0},
		{"another job's", false, "\x1eother + 1 0 \"h\" \"\"\n", "\x1eother + 1 0 \"h\" \"\"\n", 0, 0},
		{"the character alone", false, "a\x1eb\nc", "a\x1eb\nc", 0, 0},
		{"cut off", false, "a\x1eb", "a\x1eb", 0, 0},
		{"tagged", true, "[1,0]<stderr>:a\n[1,0]<stderr>:W[1,1]<stderr>:b\n", "[1,0]<stderr>:a\n[1,1]<stderr>:b\n", 1, 0},
		{"tagged, no newline", true, "[1,0]<stderr>:a", "[1,0]<stderr>:a", 0, 0},
		{"long", false, strings.Repeat("x", 3*maxHeld) + "\n", strings.Repeat("x", 3*maxHeld) + "\n", 0, 0},
		{"long after the character", false, "\x1e" + strings.Repeat("x", 3*maxHeld), "\x1e" + strings.Repeat("x", 3*maxHeld), 0, 0},
	} {
		for _, step := range []int{1, 2, 7, 100, 1 << 20} {
			w := newWords(c.whole)
			text := strings.ReplaceAll(c.stream, "W", job.Word{Kind: job.Started, Rank: 1, Host: "h"}.Line(w.token))
			got, heard := "", 0
			for piece := range slices.Chunk([]byte(text), step) {
				w.quiet["h"] = 1
				got += string(w.filter(piece))
				if w.quiet["h"] == 0 {
					heard++
				}
			}
			got += string(w.rest())
			if got != c.want || (heard > 0) != (c.heard > 0) {
				t.Errorf("%s in pieces of %d: got %.80q, %d words; want %.80q, %d", c.name, step, got, heard, c.want, c.heard)
			}
		}
	}
}

func TestWhoFailed(t *testing.T) {
	started := func(rank int, host string) job.Word { return job.Word{Kind: job.Started, Rank: rank, Host: host} }
	ended := func(kind job.WordKind, rank, status int, host, text string) job.Word {
		return job.Word{Kind: kind, Rank: rank, Status: status, Host: host, Text: text}
	}
	for _, c := range []struct {
		name   string
		said   []job.Word
		want   string
		status int
	}{
		{"none started", nil, "", 0},
		{"all well", []job.Word{started(0, "a"), ended(job.Ended, 0, 0, "a", "")}, "", 0},
		{"the first of its own accord", []job.Word{started(0, "a"), started(1, "b"),
			ended(job.Dragged, 0, 1, "a", "rank 1 aborted: boom"), ended(job.Ended, 1, 1, "b", "boom")},
			"rank 1 on b failed: boom (exit code 1)", 1},
		{"the earlier of two", []job.Word{ended(job.Ended, 3, 4, "a", "x"), ended(job.Ended, 1, 1, "b", "y")},
			"rank 3 on a failed: x (exit code 4)", 4},
		{"only followers", []job.Word{started(0, "a"), ended(job.Dragged, 0, 1, "a", "late")}, "rank 0 on a failed: late (exit code 1)", 1},
		{"a follower of a silent one", []job.Word{started(2, "b"), ended(job.Dragged, 0, 1, "a", "late\nby far")},
			"no last word from rank 2 on b; rank 0 on a failed with it: late; by far", 0},
		{"a silent one, because of another", []job.Word{started(2, "b"), ended(job.Ended, 0, 1, "a", "boom")},
			"rank 0 on a failed: boom (exit code 1)", 1},
		{"silent", []job.Word{started(0, "a"), started(1, "a"), started(2, "b"), started(3, "b"), ended(job.Ended, 0, 0, "a", "")},
			"no last word from rank 1 on a and ranks 2-3 on b", 0},
		{"killed", []job.Word{started(0, "a"), started(1, "b"), ended(job.Gone, 1, 137, "b", "")},
			"rank 1 on b failed: it was killed by SIGKILL; if nobody did that, memory ran out: see dmesg there (exit code 137)", 137},
		{"killed, and the others' connections lost", []job.Word{started(0, "a"), started(1, "b"),
			ended(job.Ended, 0, 1, "a", "MPI_Isend: other error"), ended(job.Gone, 1, 137, "b", "")},
			"rank 1 on b failed: it was killed by SIGKILL; if nobody did that, memory ran out: see dmesg there (exit code 137)", 137},
		{"silent exit", []job.Word{started(0, "a"), ended(job.Gone, 0, 3, "a", "")},
			"rank 0 on a failed: it ended without saying why (exit code 3)", 3},
		{"os.Exit(0)", []job.Word{started(0, "a"), ended(job.Gone, 0, 0, "a", "")},
			"rank 0 on a failed: it ended with exit code 0 before its function had returned, as os.Exit does (exit code 1)", 1},
		{"gone after a last word", []job.Word{started(0, "a"), ended(job.Ended, 0, 1, "a", "boom"), ended(job.Gone, 0, 1, "a", "")},
			"rank 0 on a failed: boom (exit code 1)", 1},
		{"another program ends well", []job.Word{ended(job.Gone, 0, 0, "a", "")}, "", 0},
		{"another program fails", []job.Word{ended(job.Gone, 0, 4, "a", "")}, "rank 0 on a failed: it ended without saying why (exit code 4)", 4},
	} {
		h := &Handover{words: newWords(false)}
		for _, w := range c.said {
			h.words.take(w)
		}
		if text, status, _ := h.failure(); text != c.want || status != c.status {
			t.Errorf("%s: got %q, %d; want %q, %d", c.name, text, status, c.want, c.status)
		}
		want := slices.Contains([]string{"all well", "another program ends well"}, c.name)
		if got := h.words.allWell(max(1, len(h.words.ranks))); got != want {
			t.Errorf("%s: all well: %v", c.name, got)
		}
	}
	if text, _, ok := (&Handover{}).failure(); ok || text != "" {
		t.Errorf("without words: %q", text)
	}
}

// Launchers name the first rank that failed; the words here are Open MPI 4.1's and 5.0's
// and Slurm 22.05's.
func TestBlame(t *testing.T) {
	const nobody = "no last word from ranks 2-3 on b"
	for _, c := range []struct {
		said, want string
		status     int
	}{
		{"mpirun noticed that process rank 3 with PID 838 on node node2 exited on signal 9 (Killed).",
			"rank 3 on b failed: it was killed by SIGKILL; if nobody did that, memory ran out: see dmesg there (exit code 137)", 137},
		{"prterun noticed that process rank 3 with PID 838 on node node2 exited on signal 11 (Segmentation fault).",
			"rank 3 on b failed: it was killed by SIGSEGV (exit code 139)", 139},
		{"mpirun has exited due to process rank 2 with PID 0 on\nnode node2 exiting improperly.",
			"rank 2 on b failed: it ended with exit code 0 before its function had returned, as os.Exit does (exit code 1)", 1},
		{"  Process name: [[19018,1],3]\n  Exit code:    3", "rank 3 on b failed: it ended without saying why (exit code 3)", 3},
		{"  Process name: [prterun-node1-1234@1,2]\r\n  Exit code:    4\r", "rank 2 on b failed: it ended without saying why (exit code 4)", 4},
		{"panic: boom\n\ngoroutine 1 [running]:\n  Process name: [[19018,1],3]\n  Exit code:    2",
			"rank 3 on b failed: panic: boom (exit code 2)", 2},
		{"no panic: here\n  Process name: [[19018,1],3]\n  Exit code:    2", "rank 3 on b failed: it ended without saying why (exit code 2)", 2},
		{"srun: error: node2: task 2: Exited with exit code 3\nsrun: error: node1: task 0: Killed",
			"rank 2 on b failed: it ended without saying why (exit code 3)", 3},
		{"srun: error: node2: task 3: Aborted", "rank 3 on b failed: it was killed by SIGABRT (exit code 134)", 134},
		{"srun: error: node2: tasks 2-3: Killed", nobody, 0},
		{"srun: error: node2: task 3: Out Of Memory", nobody, 0},
		{"my own words: Process name: of srun: error: task 2: none", nobody, 0},
		{"Process name: [a,2]\nother\nExit code: 3", nobody, 0},
		{"srun: error: node1: task 0: Exited with exit code 3", nobody, 0}, // it has told
		{"srun: error: node1: task 7: Exited with exit code 3", nobody, 0}, // nobody knows it
		{"srun: error: node1: task 99999999999999999999: Killed", nobody, 0},
		{strings.Repeat("rocess ", 1000), nobody, 0},
	} {
		h := &Handover{words: newWords(false)}
		for r := range 4 {
			h.words.take(job.Word{Kind: job.Started, Rank: r, Host: "ab"[r/2 : r/2+1]})
		}
		for r := range 2 {
			h.words.take(job.Word{Kind: job.Ended, Rank: r, Host: "a"})
		}
		for piece := range slices.Chunk([]byte(c.said+"\n"), 7) {
			h.words.filter(piece)
		}
		if text, status, _ := h.failure(); text != c.want || status != c.status {
			t.Errorf("%q: got %q, %d, want %q, %d", c.said, text, status, c.want, c.status)
		}
	}
}

// Slurm kills the others when a rank has failed: what the shells then say of them is no
// failure of theirs.
func TestKilledForAnothersFailure(t *testing.T) {
	w := newWords(false)
	say := func(kind job.WordKind, rank, status int, text string) string {
		return job.Word{Kind: kind, Rank: rank, Status: status, Host: "a", Text: text}.Line(w.token)
	}
	w.filter([]byte(say(job.Started, 0, 0, "") + say(job.Ended, 2, 127, "there is no program x") +
		"srun: error: node2: tasks 2-3: Exited with exit code 127\n" + say(job.Gone, 0, 143, "")))
	const want = "rank 2 on a failed: there is no program x (exit code 127)"
	if text, status, _ := (&Handover{words: w}).failure(); text != want || status != 127 {
		t.Errorf("got %q, %d; want %q, 127", text, status, want)
	}
}

// A signal to one rank stops the job, one to several or after a failure is the launcher's.
func TestWhoseSignal(t *testing.T) {
	asked := func(r int) job.Word {
		return job.Word{Kind: job.Asked, Rank: r, Status: int(syscall.SIGTERM), Host: "a"}
	}
	for _, c := range []struct {
		name string
		said []job.Word
		line string
		want bool
	}{
		{"none", nil, "", false},
		{"one", []job.Word{asked(2)}, "", true},
		{"several", []job.Word{asked(2), asked(1)}, "", false},
		{"after a failure", []job.Word{{Kind: job.Gone, Rank: 1, Status: 3, Host: "a"}, asked(2)}, "", false},
		{"as the launcher says", []job.Word{asked(2)}, "Primary job  terminated normally, but 1 process returned\n", false},
	} {
		w := newWords(false)
		w.filter([]byte(c.line))
		for _, it := range c.said {
			w.take(it)
		}
		if rank, sig, ok := w.stop(); ok != c.want || ok && (rank != 2 || sig != syscall.SIGTERM) {
			t.Errorf("%s: got rank %d, %v, %v", c.name, rank, sig, ok)
		}
	}
}

// A signal to all ranks that was not gorun's, as Slurm's before a time limit, stops the job before its work is done: it
// does not end well, and an elastic one does not go on.
func TestStoppedByItsSystem(t *testing.T) {
	for _, c := range []struct {
		name   string
		launch syscall.WaitStatus // how the launcher ended
		reason supervisor.Reason
		asks   int
		want   int
	}{
		{"all well", 0, supervisor.Finished, 0, 0},
		{"the launcher trips", 1 << 8, supervisor.Failed, 0, 0},
		{"asked", 0, supervisor.Finished, 2, 143},
		{"asked, as srun tells it", 143 << 8, supervisor.Failed, 2, 143},
	} {
		stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
		if err != nil {
			t.Fatal(err)
		}
		h := &Handover{words: newWords(false), opts: &options.Options{Apps: []options.App{{Ranks: 2}}},
			console: stdio.NewConsole(stderr, stderr, false)}
		for r := range 2 {
			h.words.take(job.Word{Kind: job.Started, Rank: r, Host: "a"})
			if r < c.asks {
				h.words.take(job.Word{Kind: job.Asked, Rank: r, Host: "a", Status: int(syscall.SIGTERM)})
			}
		}
		for r := range 2 {
			h.words.take(job.Word{Kind: job.Ended, Rank: r, Host: "a"})
		}
		o := &supervisor.Outcome{Reason: c.reason, Ends: []supervisor.End{{Ended: true, Status: c.launch}}}
		if got := h.report(o, "srun"); got != c.want || mayGoOn(o) != (c.asks == 0) {
			t.Errorf("%s: exit status %d, want %d; an elastic job goes on: %v", c.name, got, c.want, mayGoOn(o))
		}
		h.console.Close()
		said, _ := os.ReadFile(stderr.Name())
		if got := strings.Contains(string(said), "SIGTERM had come to the ranks, not from gorun"); got != (c.asks > 0) {
			t.Errorf("%s: gorun says %q", c.name, said)
		}
		stderr.Close()
	}
}

// A launcher that ends well without having started a rank has not done the job, as Open MPI 4 that is stopped and continued while it
// starts its daemons. Of ranks that gorun asks for no word nothing is known.
func TestNoRankHasStarted(t *testing.T) {
	for _, c := range []struct {
		remote, words, placed bool
		want                  int
	}{{true, true, false, exit.Lost}, {true, true, true, 0}, {true, false, false, 0}, {false, true, false, 0}} {
		stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
		if err != nil {
			t.Fatal(err)
		}
		h := &Handover{remote: c.remote, opts: &options.Options{Apps: []options.App{{Ranks: 2}}},
			launcher: installed{Launcher: hosts.OpenMPI4()}, console: stdio.NewConsole(stderr, stderr, false)}
		if c.words {
			h.words = newWords(false)
		}
		if c.placed {
			h.words.take(job.Word{Kind: job.Placed, Rank: 1, Host: "a"})
		}
		o := &supervisor.Outcome{Reason: supervisor.Finished, Ends: []supervisor.End{{Ended: true}}}
		got := h.report(o, "mpirun")
		h.console.Close()
		said, _ := os.ReadFile(stderr.Name())
		stderr.Close()
		if got != c.want || strings.Contains(string(said), "no rank has started, though mpirun ended well") != (c.want != 0) {
			t.Errorf("%+v: exit status %d; gorun says %q", c, got, said)
		}
	}
}

// A rank that has failed ends the job when its launcher has not within the grace period.
func TestFailedRankEndsTheJob(t *testing.T) {
	h := &Handover{words: newWords(false), opts: &options.Options{Grace: 3 * time.Second}}
	h.words.take(job.Word{Kind: job.Started, Rank: 0, Host: "a"})
	h.words.take(job.Word{Kind: job.Dragged, Rank: 2, Host: "a", Status: 1})
	for range 6 {
		if _, over := h.look(); over {
			t.Fatal("over, though no rank has failed of its own accord")
		}
	}
	h.words.take(job.Word{Kind: job.Ended, Rank: 1, Host: "a", Status: 1})
	for n := 1; n <= 4; n++ {
		if _, over := h.look(); over != (n == 4) {
			t.Errorf("look %d after the failure: over is %v", n, over)
		}
	}
}

func TestLostHosts(t *testing.T) {
	w := newWords(false)
	looks := int(silence/watchdog.Interval) + 1
	w.take(job.Word{Kind: job.Started, Rank: 0, Host: "a"})
	w.take(job.Word{Kind: job.Started, Rank: 1, Host: "b"})
	for range looks - 1 {
		w.take(job.Word{Kind: job.Alive, Rank: 0, Host: "a"})
		if lost := w.look(); len(lost) > 0 {
			t.Fatalf("%v is lost too early", lost)
		}
	}
	if lost := w.look(); !slices.Equal(lost, []string{"b"}) {
		t.Errorf("lost are %v, want b", lost)
	}
	if w.unheard() {
		t.Error("rank 0 on a can still be heard")
	}
	w.take(job.Word{Kind: job.Ended, Rank: 0, Host: "a", Status: 1})
	if !w.unheard() {
		t.Error("only rank 1 is left, on b, which is lost")
	}
	w.take(job.Word{Kind: job.Ended, Rank: 1, Host: "b"})
	if w.unheard() {
		t.Error("no rank is left, and b is lost")
	}
	for range looks {
		w.take(job.Word{Kind: job.Alive, Rank: 0, Host: "a"})
		if lost := w.look(); len(lost) > 0 {
			t.Errorf("%v is lost after its ranks have ended", lost)
		}
	}
}

// Ranks that are not placed long after others are missed, unless they have spoken.
func TestMissingRanks(t *testing.T) {
	w := newWords(false)
	w.take(job.Word{Kind: job.Started, Rank: 3, Host: "a"})
	if got := w.missing(4); got != nil {
		t.Errorf("missing are %v, though the launcher starts ranks without a shell", got)
	}
	w.take(job.Word{Kind: job.Placed, Rank: 1, Host: "a"})
	if got := w.missing(4); !slices.Equal(got, []int{0, 2}) || w.started() != 1 {
		t.Errorf("missing are %v, want 0 and 2; started are %d, want 1", got, w.started())
	}
	w.take(job.Word{Kind: job.Placed, Rank: 0, Host: "a"})
	w.take(job.Word{Kind: job.Ended, Rank: 2, Status: 127, Host: "b", Text: "there is no folder"})
	if got := w.missing(4); got != nil {
		t.Errorf("missing are %v, want none", got)
	}
}

// A host that ssh does not reach or enter is named, if it is one of the job's and no rank has started. Where ssh names none, all are.
func TestUnreachedHosts(t *testing.T) {
	list := []hosts.Host{{Name: "a"}, {Name: "b"}}
	for line, want := range map[string]string{
		"ssh: Could not resolve hostname b: Name or service not known\r\n": "b cannot be reached (ssh: Could not resolve hostname b: " +
			"Name or service not known); mend its name or its line of the host file, and try ssh b true",
		"ssh: connect to host b port 22: No route to host\r\n": "b cannot be reached (ssh: connect to host b port 22: " +
			"No route to host); mend its name or its line of the host file, and try ssh b true",
		"root@b: Permission denied (publickey).\r\n": "b cannot be reached (ssh: root@b: Permission denied (publickey).); " +
			"mend its name or its line of the host file, and try ssh b true",
		"No ED25519 host key is known for b and you have requested strict checking.\r\nHost key verification failed.\r\n": "b cannot be " +
			"reached (ssh: No ED25519 host key is known for b and you have requested strict checking.); mend its name or its line of the " +
			"host file, and try ssh b true",
		"Host key verification failed.\r\n": "a host cannot be reached (ssh: Host key verification failed.); try ssh to each of a, b",
		"Connection timed out during banner exchange\r\n": "a host cannot be reached (ssh: Connection timed out during banner exchange); " +
			"try ssh to each of a, b",
		"kex_exchange_identification: Connection closed by remote host\r\n": "a host cannot be reached (ssh: kex_exchange_identification: " +
			"Connection closed by remote host); try ssh to each of a, b",
		"open b: Permission denied (os error 13)\n":                   "",
		"root@c: Permission denied (publickey).\r\n":                  "",
		"ssh: connect to host c port 22: No route to host\r\n":        "",
		"ssh: connect to host b port 22: No rou":                      "",
		"it said: ssh: connect to host b port 22: No route to host\n": "",
	} {
		w := newWords(false)
		w.filter([]byte(line))
		if _, got, down := w.unreached(list); got != want || down != strings.Contains(want, "No route") {
			t.Errorf("%q: %q, want %q; its host is down: %v", line, got, want, down)
		}
		w.take(job.Word{Kind: job.Started, Rank: 0, Host: "a"})
		if _, got, _ := w.unreached(list); got != "" {
			t.Errorf("%q: %q, though a rank has started", line, got)
		}
	}
}
