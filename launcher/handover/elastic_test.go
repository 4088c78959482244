//go:build linux

package handover

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/internal/snapshot"
	"github.com/gorun-spmd/gorun/launcher/hosts"
	"github.com/gorun-spmd/gorun/launcher/machine"
	"github.com/gorun-spmd/gorun/launcher/options"
	"github.com/gorun-spmd/gorun/launcher/supervisor"
)

// anew is said where there is nothing in memory to go on from.
const anew = "no snapshot is whole, so ranks without a checkpoint begin anew"

// What an attempt has told decides whether another follows, where, and with how many ranks.
func TestElasticDecisions(t *testing.T) {
	started := func(host string, ranks ...int) (said []job.Word) {
		for _, r := range ranks {
			said = append(said, job.Word{Kind: job.Started, Rank: r, Host: host})
		}
		return said
	}
	begun, kept := job.Word{Kind: job.Begun, Host: "node1.site"}, func(step int) job.Word {
		return job.Word{Kind: job.Kept, Status: step, Host: "node1.site"}
	}
	all := slices.Concat(started("node1.site", 0, 1), started("node2.site", 2, 3))
	own := job.Word{Kind: job.Ended, Rank: 1, Status: 1, Host: "node1.site", Text: "there is no such flag"}
	killed := job.Word{Kind: job.Gone, Rank: 3, Status: 137, Host: "node2.site"}
	ssh := func(says string) []job.Word { return []job.Word{{Text: says}} }
	here, both := []string{"node1.site"}, []string{"node1.site", "node2.site"}
	type attempt struct {
		said  []job.Word
		alive []string
		ranks int // of the next one; 0: there is none
		says  string
	}
	for _, c := range []struct {
		name     string
		flags    string
		hosts    string
		attempts []attempt
	}{
		{"restart after a death", "--elastic restart", "node1:2,node2:2",
			[]attempt{{append(all, begun, kept(3), killed), both, 4, "starting the job again, restart 1, from the last snapshot"}}},
		{"shrink after a death", "--elastic shrink", "node1:2,node2:2",
			[]attempt{{append(all, begun, kept(3), killed), both, 3, "starting the job again with 3 ranks, restart 1"}}},
		{"a lost host", "--elastic restart", "node1:2,node2:2",
			[]attempt{{append(all, begun, kept(3)), here, 2, "node2 lost: it does not answer, or its memory is gone; " +
				"starting the job again with 2 ranks, restart 1"}}},
		{"a lost host, and a spare one", "--elastic restart", "node1:2,node2:2,node3:1",
			[]attempt{{append(all, begun, kept(3)), here, 3, "with 3 ranks"}}},
		{"a lost host, and enough slots", "--elastic restart", "node1:2,node2:2,node3:2",
			[]attempt{{append(all, begun, kept(3)), here, 4, "its memory is gone; starting the job again, restart 1"}}},
		{"a lost host, shrink", "--elastic shrink", "node1:2,node2:2,node3:2",
			[]attempt{{append(all, begun, kept(3)), here, 2, "with 2 ranks"}}},
		{"too few slots", "--elastic shrink --min-np 3", "node1:2,node2:2",
			[]attempt{{append(all, begun, kept(3)), here, 0, "no slots are left for 3 ranks"}}},
		{"a wrong flag", "--elastic restart", "node1:2,node2:2", []attempt{{append(all, own), both, 0, "by its own word before its first step"}}},
		{"a program that a host lacks", "--elastic restart", "node1:2,node2:2", []attempt{{[]job.Word{
			{Kind: job.Ended, Rank: 2, Status: 127, Host: "node2.site", Text: "there is no program"}}, here, 0, "by its own word"}}},
		{"a rank that is never placed", "--elastic restart", "node1:2,node2:2", []attempt{{[]job.Word{
			{Kind: job.Placed, Rank: 0, Host: "node1.site"}}, both, 4, "restart 1; " + anew}}},
		{"no rank starts", "--elastic restart", "node1:2,node2:2", []attempt{{nil, here, 0, "before its first step"}}},
		{"a host is down at the start", "--elastic restart", "node1:2,node2:2,node3:2", []attempt{{ssh("connect to host node2 port 22: No route"),
			here, 4, "node2 lost: it does not answer, or its memory is gone; starting the job again, restart 1; " + anew}}},
		{"a host is down at the start, shrink", "--elastic shrink", "node1:2,node2:2",
			[]attempt{{ssh("connect to host node2 port 22: Connection timed out"), here, 2, "with 2 ranks"}}},
		{"the spare host is down", "--elastic restart", "node1:2,node2:2,node3:2", []attempt{
			{append(all, begun, kept(3)), here, 4, "restart 1, from the last"},
			{ssh("connect to host node3 port 22: No route to host"), here, 2, "node3 lost: it does not answer, or its memory is gone; " +
				"starting the job again with 2 ranks, restart 2, from the last"}}},
		{"a host without an address", "--elastic restart", "node1:2,node2:2", []attempt{{ssh("Could not resolve hostname node2: Name or"),
			here, 0, "not starting the job again: node2 cannot be reached"}}},
		{"a host that does not let in", "--elastic restart", "node1:2,node2:2", []attempt{{ssh("root@node2: Permission denied (publickey)."),
			here, 0, "not starting the job again: node2 cannot be reached"}}},
		{"ssh names no host", "--elastic restart", "node1:2,node2:2", []attempt{{ssh("Connection timed out during banner exchange"),
			both, 4, "restart 1; " + anew}}},
		{"a daemon dies before the first step", "--elastic restart", "node1:2,node2:2", []attempt{{append(all,
			job.Word{Kind: job.Dragged, Rank: 1, Status: 1, Host: "node1.site", Text: "rank 2 ended"}), both, 4, anew}}},
		{"killed before the first step", "--elastic restart", "node1:2,node2:2",
			[]attempt{{append(all, killed), both, 4, "restart 1; " + anew}}},
		{"no progress", "--elastic restart", "node1:2,node2:2", []attempt{
			{append(all, begun, kept(3), killed), both, 4, "restart 1"}, {append(all, begun, killed), both, 4, "restart 2"},
			{append(all, begun, kept(6), killed), both, 4, "restart 3"}, {append(all, begun, kept(6), killed), both, 4, "restart 4"},
			{append(all, begun, kept(6), killed), both, 4, "restart 5"},
			{append(all, begun, killed), both, 0, "3 attempts in a row have come no further than the snapshot of step 6"}}},
		{"nothing saved", "--elastic restart", "node1:2,node2:2", []attempt{
			{append(all, begun, killed), both, 4, "restart 1"}, {append(all, begun, killed), both, 4, "restart 2"},
			{append(all, begun, killed), both, 0, "3 attempts in a row have failed and had saved nothing"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, err := options.Parse(append(strings.Fields(c.flags), "--host", c.hosts, "-np", "4", "train"), 1, os.LookupEnv, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			list, err := hosts.ParseList(c.hosts)
			if err != nil {
				t.Fatal(err)
			}
			h := &Handover{opts: o, elastic: &elastic{hosts: list, progress: supervisor.Progress{Best: -1}}}
			for i, a := range c.attempts {
				h.words = newWords(false)
				h.number = i
				for _, w := range a.said {
					if w.Kind == 0 {
						h.words.ssh = w.Text
						continue
					}
					h.words.take(w)
				}
				var lines []string
				again := h.goesOn(a.alive, 0, func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) })
				text := strings.Join(lines, "; ")
				if again != (a.ranks > 0) || again && o.Size() != a.ranks || !strings.Contains(text, a.says) {
					t.Errorf("attempt %d: again %v with %d ranks, want %d; it says %q, want %q", i, again, o.Size(), a.ranks, text, a.says)
				}
			}
		})
	}
}

// A job goes on with as many ranks as gorun scale asks for, if they have slots on the hosts that are left.
func TestElasticScales(t *testing.T) {
	for _, c := range []struct {
		wanted    int
		lost      int // how many of the last hosts, before
		alive     string
		kept      int // 0: no snapshot
		resizes   bool
		ranks     int
		says      string
		remaining int // what is wanted after resize
	}{
		{2, 0, "node1.site node2.site node3.site", 5, true, 2, "starting the job again with 2 ranks, restart 1, from the last snapshot", 2},
		{6, 0, "node1.site node2.site node3.site", 5, true, 6, "starting the job again with 6 ranks, restart 1, from the last snapshot", 6},
		{3, 0, "node1.site node2.site node3.site", 0, true, 3, "with 3 ranks, restart 1; " + anew, 3},
		{5, 0, "node1.site node3.site", 5, true, 4, "node2 lost: it does not answer, or its memory is gone; starting the job again, " +
			"restart 1", 5},
		{6, 1, "node1.site node2.site", 5, true, 6, "trying all hosts again: those that are left have no slots for 6 ranks; " +
			"starting the job again with 6 ranks, restart 1", 6},
		{4, 0, "", 0, false, 4, "", 0},
		{7, 1, "", 0, false, 4, "7 ranks wanted, and refused: there are no slots for them on node1, node2, node3", 0},
	} {
		o, err := options.Parse(strings.Fields("--elastic restart --host node1:2,node2:2,node3:2 -np 4 train"), 1, os.LookupEnv, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		list, err := hosts.ParseList("node1:2,node2:2,node3:2")
		if err != nil {
			t.Fatal(err)
		}
		memory, err := snapshot.Create()
		if err != nil {
			t.Fatal(err)
		}
		defer memory.Close()
		if err := snapshot.Want(memory, c.wanted); err != nil {
			t.Fatal(err)
		}
		h := &Handover{opts: o, list: hostList{hosts: list}, words: newWords(false),
			elastic: &elastic{hosts: list[:3-c.lost], memory: memory, progress: supervisor.Progress{Best: -1}}}
		for r := range 4 {
			h.words.take(job.Word{Kind: job.Started, Rank: r, Host: fmt.Sprintf("node%d.site", r/2+1)})
		}
		if c.kept > 0 {
			h.words.take(job.Word{Kind: job.Begun, Host: "node1.site"})
			h.words.take(job.Word{Kind: job.Kept, Status: c.kept, Host: "node1.site"})
		}
		said := ""
		say := func(format string, args ...any) { said += fmt.Sprintf(format, args...) + "; " }
		resizes := h.resize(say)
		if resizes && !h.goesOn(strings.Fields(c.alive), c.wanted, say) {
			t.Errorf("%d ranks: the job ends", c.wanted)
		}
		if left, err := snapshot.Wanted(memory); err != nil || left != c.remaining {
			t.Errorf("%d ranks: %d are wanted then, want %d; %v", c.wanted, left, c.remaining, err)
		}
		if resizes != c.resizes || o.Size() != c.ranks || !strings.Contains(said, c.says) {
			t.Errorf("%d ranks: resizes %v, goes on with %d ranks, want %v and %d; it says %q, want %q",
				c.wanted, resizes, o.Size(), c.resizes, c.ranks, said, c.says)
		}
	}
}

// A signal to one rank counts when it has stood for some looks without a failure.
func TestElasticHeedsSignals(t *testing.T) {
	for _, fails := range []bool{false, true} {
		w := newWords(false)
		w.heed = elasticHeed
		w.take(job.Word{Kind: job.Started, Host: "a"})
		for range 3 {
			if _, _, ok := w.stop(); ok {
				t.Fatal("nothing has come")
			}
		}
		w.take(job.Word{Kind: job.Asked, Host: "a", Status: 15})
		for i := range elasticHeed {
			if _, _, ok := w.stop(); ok {
				t.Fatalf("it counts at look %d", i)
			}
		}
		if fails {
			w.take(job.Word{Kind: job.Ended, Host: "a", Status: 1})
		}
		if rank, sig, ok := w.stop(); ok == fails || ok && (rank != 0 || sig != 15) {
			t.Errorf("rank %d, signal %d, %v", rank, sig, ok)
		}
	}
}

// What cannot be elastic is refused by name.
func TestElasticIsRefused(t *testing.T) {
	for _, c := range []struct{ args, env, want string }{
		{"--via openmpi --elastic restart -np 2 train", "", "without --via"},
		{"--host node1:2,node2:2 --via slurm --elastic restart -np 2 train", "", "Slurm ends with a step all that it has started"},
		{"--host node1:2,node2:2 --via openmpi --elastic restart -np 2 train", "SLURM_JOB_ID", "in an allocation of Slurm's"},
		{"--host node1:2,node2:2 --elastic restart -np 2 train : -np 2 train", "", "with several programs"},
		{"--host node1:2,node2:2 --elastic restart --output out -np 2 train", "", "--output"},
		{"--host node1:2,node2:2 --elastic restart -np 2 train", "", ""},
	} {
		o, err := options.Parse(strings.Fields(c.args), 1, os.LookupEnv, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		f := finder{hosts.Launchers(), func(name string) (string, error) { return name, nil },
			func(string) string { return "mpirun (Open MPI) 4.1.4" }}
		_, err = chosen(o, nil, nil, machine.Machine{Host: "node9", Cores: 4}, f,
			func(name string) (string, bool) { return "17", name == c.env })
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
}
