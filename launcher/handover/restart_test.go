//go:build linux

package handover

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/launcher/hosts"
	"github.com/gorun-spmd/gorun/launcher/options"
)

// What an attempt has told, and how long it took, decides whether another follows on the same hosts.
func TestRepeats(t *testing.T) {
	start := func(rank int) job.Word { return job.Word{Kind: job.Started, Rank: rank, Host: "node1.site"} }
	stored := job.Word{Kind: job.Stored, Rank: 1, Host: "node1.site"}
	boom := job.Word{Kind: job.Ended, Rank: 1, Status: 1, Host: "node1.site", Text: "boom"}
	const long, short = time.Minute, time.Second
	for _, c := range []struct {
		name   string
		number int
		took   time.Duration
		said   []job.Word
		ssh    string
		again  bool
		says   string
	}{
		{"it had saved", 0, short, []job.Word{start(0), start(1), stored, boom}, "", true, "starting the job again, restart 1 of 2"},
		{"it had not", 1, short, []job.Word{start(0), start(1), boom}, "", false, "it failed within 10s of its start and had saved nothing"},
		{"it had run for long", 1, long, []job.Word{start(0), start(1), boom}, "", true, "starting the job again, restart 2 of 2"},
		{"nobody says why it failed", 0, long, []job.Word{start(0), start(1)}, "", true, "starting the job again, restart 1 of 2"},
		{"often enough", 2, long, []job.Word{start(0), start(1), stored, boom}, "", false, "it has failed 3 times (--max-restarts 2)"},
		{"a host is down", 1, long, nil, "connect to host node2 port 22: No route to host", false, "node2 cannot be reached"},
	} {
		h := &Handover{opts: &options.Options{Restarts: 2}, number: c.number, words: newWords(false)}
		var err error
		if h.list.hosts, err = hosts.ParseList("node1:1,node2:1"); err != nil {
			t.Fatal(err)
		}
		h.words.ssh = c.ssh
		for _, w := range c.said {
			h.words.take(w)
		}
		var lines []string
		again := h.repeats(time.Now().Add(-c.took), func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) })
		if text := strings.Join(lines, "; "); again != c.again || !strings.Contains(text, c.says) {
			t.Errorf("%s: again %v; it says %q, want %q", c.name, again, text, c.says)
		}
	}
}
