package launcher

import (
	"bytes"
	"crypto/rand"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorun-spmd/gorun/internal/job"
)

// silence is how long a host may be without a word before it counts as lost. Its
// ranks speak every job.AliveInterval.
const silence = 9 * time.Second

// words is what the ranks of a handed-over job have told of themselves: runtime.Main
// writes a line among standard error when a rank starts, every few seconds for each
// host, and at the end. So gorun can name the rank and the host that failed, and
// does not believe a launcher that all is well.
type words struct {
	token string
	whole bool // the launcher puts something before each line, which goes with the word

	mu    sync.Mutex
	ranks map[int]*spoken
	quiet map[string]int // looks since the last word from a host
	order int
	held  []byte // of the stream: what may become a word
}

// spoken is what one rank has said.
type spoken struct {
	host    string
	last    job.Word // Ended or Dragged, once it has
	ended   bool
	arrived int // 1 for the first that ended
}

func newWords(whole bool) *words {
	return &words{token: rand.Text(), whole: whole, ranks: map[int]*spoken{}, quiet: map[string]int{}}
}

// maxHeld is more than any word with what a launcher puts before it.
const maxHeld = 4096

// filter takes the words out of a piece of the stream. What it returns is valid
// until the next call.
func (w *words) filter(piece []byte) []byte {
	w.held = append(w.held, piece...)
	var out []byte
	for len(w.held) > 0 {
		end := bytes.IndexByte(w.held, '\n') + 1
		line := w.held[:max(end, 0)]
		if end == 0 {
			line = w.held
		}
		mark := bytes.IndexByte(line, job.WordMark)
		switch {
		case mark >= 0 && end == 0 && len(line) < maxHeld: // perhaps a word, when it is whole
			if !w.whole {
				out = append(out, line[:mark]...)
				w.held = w.held[mark:]
			}
			return out
		case mark >= 0 && end > 0:
			if it, ok := job.ParseWord(w.token, strings.TrimRight(string(line[mark:]), "\r\n")); ok {
				w.take(it)
				if !w.whole {
					out = append(out, line[:mark]...)
				}
				w.held = w.held[end:]
				continue
			}
		case end == 0 && w.whole && len(line) < maxHeld:
			return out
		}
		out = append(out, line...)
		w.held = w.held[len(line):]
	}
	return out
}

// rest returns what was held when the stream has ended.
func (w *words) rest() []byte { return w.held }

// take takes a word in.
func (w *words) take(it job.Word) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.quiet[it.Host] = 0
	s := w.ranks[it.Rank]
	if s == nil {
		s = &spoken{}
		w.ranks[it.Rank] = s
	}
	s.host = it.Host
	if (it.Kind == job.Ended || it.Kind == job.Dragged) && !s.ended {
		w.order++
		s.ended, s.last, s.arrived = true, it, w.order
	}
}

// look counts a look that was taken after another, and returns the hosts from
// which no word has come for longer than silence, though ranks run there. Time in
// which gorun itself was stopped has no looks.
func (w *words) look() (lost []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for host := range w.quiet {
		w.quiet[host]++
		if w.quiet[host] > int(silence/lookInterval) && len(w.running(host)) > 0 {
			lost = append(lost, host)
		}
	}
	slices.Sort(lost)
	return lost
}

// running returns the ranks of a host, of all for "", that have not said that they
// ended. The lock is held.
func (w *words) running(host string) (ranks []int) {
	for r, s := range w.ranks {
		if !s.ended && (host == "" || s.host == host) {
			ranks = append(ranks, r)
		}
	}
	slices.Sort(ranks)
	return ranks
}

// first returns the rank that failed first of its own accord, or else the first
// that failed because of another one.
func (w *words) first() (it job.Word, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	arrived := 0
	for _, s := range w.ranks {
		if !s.ended || s.last.Status == 0 {
			continue
		}
		better := s.arrived < arrived
		if s.last.Kind != it.Kind {
			better = s.last.Kind == job.Ended
		}
		if !ok || better {
			it, arrived, ok = s.last, s.arrived, true
		}
	}
	return it, ok
}

// silent describes the ranks that have not said that they ended: "rank 2 on node2",
// "ranks 2-3 on node2 and rank 5 on node3"; "" if there are none.
func (w *words) silent() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var parts []string
	for _, host := range w.hosts() {
		if ranks := w.running(host); len(ranks) > 0 {
			parts = append(parts, naming(ranks)+" on "+host)
		}
	}
	return strings.Join(parts, " and ")
}

// allWell reports whether every rank has told that it ended, and none of a failure.
func (w *words) allWell() bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.ranks {
		if !s.ended || s.last.Kind != job.Ended || s.last.Status != 0 {
			return false
		}
	}
	return len(w.ranks) > 0
}

// on describes the ranks of a host.
func (w *words) on(host string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return naming(w.running(host))
}

// hosts returns those that were heard of. The lock is held.
func (w *words) hosts() (names []string) {
	for host := range w.quiet {
		names = append(names, host)
	}
	slices.Sort(names)
	return names
}

// relay copies a launcher's standard error without the words, until it ends.
func (w *words) relay(from, to *os.File) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if out := w.filter(buf[:n]); len(out) > 0 {
			if _, err := to.Write(out); err != nil {
				return
			}
		}
		if err != nil {
			_, _ = to.Write(w.rest()) // nobody may be there to read it
			return
		}
	}
}

// look is the supervisor's: a lost host ends the job, and so does a rank that has
// failed where its launcher lets the others go on, as MPICH's does before MPI has
// started.
func (h *handover) look() (laggards []int, over bool) {
	for _, host := range h.words.look() {
		h.console.say("no word from %s for %v: %s there may run on, cut off; the job ends (--hang-timeout 0 waits for ever)", host, silence, h.words.on(host))
		over = true
	}
	if it, ok := h.words.first(); ok && it.Kind == job.Ended {
		h.failed++
		over = over || time.Duration(h.failed)*lookInterval > h.opts.grace
	}
	return nil, over
}
