//go:build linux

package handover

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/launcher/exit"
	"github.com/gorun-spmd/gorun/launcher/phrase"
	"github.com/gorun-spmd/gorun/launcher/stdio"
	"github.com/gorun-spmd/gorun/launcher/supervisor"
	"github.com/gorun-spmd/gorun/launcher/watchdog"
)

// silence is how long a host may be without a word before it counts as lost. Its
// ranks speak every job.AliveInterval.
const silence = 9 * time.Second

// hostLimit is how long ranks on a host that was cut off may run on.
const hostLimit = 15 * time.Second

// unreachedLimit is how long a launcher may take to end after ssh has not reached a host.
const unreachedLimit = 3 * time.Second

// placedLimit is how long a launcher that has placed some ranks on their hosts may take for the others.
const placedLimit = 2 * time.Minute

// lingerLimit is how long a launcher may go on after all ranks have ended well until gorun says why.
const lingerLimit = 5 * time.Second

// words is what the ranks of a handed-over job have said about themselves: runtime.Main
// writes a line among standard error when a rank starts, every few seconds for each
// host, and at the end. So gorun can name the rank and the host that failed, and
// does not believe a launcher that all is well.
type words struct {
	token string
	whole bool // the launcher puts something before each line, which goes with the word

	mu     sync.Mutex
	ranks  map[int]*spoken
	there  map[int]bool   // the ranks that have been placed on their hosts
	quiet  map[string]int // looks since the last word from a host
	asked  job.Word       // by which a rank first told that a signal came to it
	asks   int            // how many have
	heed   int            // looks for which it has to stand before it counts
	order  int
	failed time.Time // when a rank was first heard to have failed; zero: none was
	blame  blame
	begun  bool   // rank 0 has begun its first step
	kept   int    // the step of the last snapshot; -1: there is none
	saved  bool   // a rank has saved what the job can be resumed from
	ssh    string // what ssh has said of a host that it does not reach
	held   []byte // of the stream: what may become a word
	line   []byte // of the stream: the beginning of the line that has not ended
	crash  string // the first line in which Go's runtime has said why it ends a rank
}

// spoken is what one rank has said.
type spoken struct {
	host    string
	started bool
	last    job.Word // Ended or Dragged, once it has
	ended   bool
	gone    bool // without a last word of its own
	arrived int  // 1 for the first that ended
}

func newWords(whole bool) *words {
	return &words{token: rand.Text(), whole: whole, ranks: map[int]*spoken{}, there: map[int]bool{}, quiet: map[string]int{},
		blame: newBlame(), kept: -1}
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
				if it.Kind == job.Gone && w.launcherEnds() { // it was killed for another's failure
					it.Kind = job.Dragged
				}
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
		w.hear(line, end > 0)
		out = append(out, line...)
		w.held = w.held[len(line):]
	}
	return out
}

// rest returns what was held when the stream has ended.
func (w *words) rest() []byte { return w.held }

// hear takes in what the launcher says of a rank that has failed. Of ranks that have not
// spoken the launcher's own lines tell the user enough.
func (w *words) hear(piece []byte, whole bool) {
	w.mu.Lock()
	if text, ok := sshFails(string(piece)); ok && whole && w.ssh == "" {
		w.ssh = text
	}
	w.line = append(w.line, piece[:min(len(piece), maxHeld-len(w.line))]...)
	if whole {
		w.crash = cmp.Or(w.crash, stdio.CrashLine(strings.TrimRight(string(w.line), "\r\n")))
		w.line = w.line[:0]
	}
	rank, status, ok := w.blame.read(piece, whole)
	s := w.ranks[rank]
	w.mu.Unlock()
	if ok && s != nil {
		w.take(job.Word{Kind: job.Gone, Rank: rank, Status: status, Host: s.host})
	}
}

// launcherEnds reports whether the launcher has said that it ends the job.
func (w *words) launcherEnds() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.blame.ending
}

// take takes a word in.
func (w *words) take(it job.Word) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if it.Kind == job.Placed {
		w.there[it.Rank] = true
		return
	}
	w.quiet[it.Host] = 0
	s := w.ranks[it.Rank]
	greeted := s != nil
	if s == nil {
		s = &spoken{}
		w.ranks[it.Rank] = s
	}
	s.host = it.Host
	s.started = s.started || it.Kind == job.Started
	if it.Kind == job.Gone && !s.ended {
		s.gone = true
		it = lastWord(it, greeted)
	}
	switch it.Kind {
	case job.Begun:
		w.begun = true
	case job.Kept:
		w.kept = max(w.kept, it.Status)
	case job.Stored:
		w.saved = true
	}
	if it.Kind == job.Asked {
		if w.asks == 0 {
			w.asked = it
		}
		w.asks++
	}
	if (it.Kind == job.Ended || it.Kind == job.Dragged) && !s.ended {
		w.order++
		if it.Status != 0 && w.failed.IsZero() {
			w.failed = time.Now()
		}
		s.ended, s.last, s.arrived = true, it, w.order
	}
}

// silently is said of a rank that has ended with an exit status and no word.
const silently = "it ended without saying why"

// crashed returns the line in which Go's runtime has said why a rank ended, of which it is the last word; "" if it has not.
func (w *words) crashed(it job.Word) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if it.Status != exit.Crashed || it.Text != silently {
		return ""
	}
	return phrase.Clean(w.crash)
}

// lastWord is the last word for a rank whose process has ended without one. greeted says
// that it is a rank of package runtime, which speaks at its end unless it is killed.
func lastWord(it job.Word, greeted bool) job.Word {
	switch {
	case it.Status > 128:
		it.Text = "it was killed by " + supervisor.SignalName(syscall.Signal(it.Status-128))
		if it.Status == 128+int(syscall.SIGKILL) {
			it.Text += "; " + supervisor.PerhapsMemory + " there"
		}
	case it.Status > 0:
		it.Text = silently
	case greeted:
		it.Status, it.Text = 1, "it ended with exit code 0 before its function had returned, as os.Exit does"
	}
	it.Kind = job.Ended
	return it
}

// look counts a look that was taken after another, and returns the hosts from
// which no word has come for longer than silence, though ranks run there. Time in
// which gorun itself was stopped has no looks.
func (w *words) look() (lost []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for host := range w.quiet {
		w.quiet[host]++
		if w.lost(host) {
			lost = append(lost, host)
		}
	}
	slices.Sort(lost)
	return lost
}

// lost reports whether no word has come from a host for longer than silence, though ranks
// run there. The lock is held.
func (w *words) lost(host string) bool {
	return w.quiet[host] > int(silence/watchdog.Interval) && len(w.running(host)) > 0
}

// unheard is the supervisor's: MPICH's launcher waits for a lost host until it is killed.
func (w *words) unheard() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	some := false
	for host := range w.quiet {
		if !w.lost(host) && len(w.running(host)) > 0 {
			return false
		}
		some = some || w.lost(host)
	}
	return some
}

// missing returns the ranks, of size in all, that have not been placed, though others have. MPICH's launcher waits for ever when its ssh
// has ended before they were.
func (w *words) missing(size int) (ranks []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for r := range size {
		if len(w.there) > 0 && !w.there[r] && w.ranks[r] == nil {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// voiceless reports whether no rank has said anything, though asked.
func (w *words) voiceless() bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.there)+len(w.ranks) == 0
}

// started returns how many ranks have told that they started.
func (w *words) started() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ranks)
}

// stop is the supervisor's: it finds a rank that a signal has asked to end. If signals
// come to several ranks, or after a failure, they are the launcher's, which ends all.
func (w *words) stop() (rank int, sig syscall.Signal, ok bool) {
	it, failed := w.first()
	w.mu.Lock()
	defer w.mu.Unlock()
	failed = failed && it.Kind == job.Ended || w.blame.ending || w.asks > 1
	if w.asks > 0 && w.heed > 0 {
		w.heed--
		return 0, 0, false
	}
	return w.asked.Rank, syscall.Signal(w.asked.Status), w.asks > 0 && !failed
}

// signal returns the signal that first asked a rank to end; 0 if none has.
func (w *words) signal() syscall.Signal {
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return syscall.Signal(w.asked.Status)
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

// first returns the first rank whose process ended without a last word, or else that
// failed first of its own accord, or else because of another one.
func (w *words) first() (it job.Word, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	arrived, gone := 0, false
	for _, s := range w.ranks {
		if !s.ended || s.last.Status == 0 {
			continue
		}
		better := s.arrived < arrived
		switch {
		case s.gone != gone: // what the others tell, of a lost connection for instance, comes from that
			better = s.gone
		case s.last.Kind != it.Kind:
			better = s.last.Kind == job.Ended
		}
		if !ok || better {
			it, arrived, gone, ok = s.last, s.arrived, s.gone, true
		}
	}
	return it, ok
}

// gone reports whether a rank's process has ended without a last word of its own.
func (w *words) gone(rank int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ranks[rank].gone
}

// busy reports whether a rank that was heard of has not said that it ended.
func (w *words) busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.running("")) > 0
}

// silent describes the ranks that have not said that they ended: "rank 2 on node2",
// "ranks 2-3 on node2 and rank 5 on node3"; "" if there are none.
func (w *words) silent() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var parts []string
	for _, host := range w.hosts() {
		if ranks := w.running(host); len(ranks) > 0 {
			parts = append(parts, phrase.Ranks(ranks)+" on "+host)
		}
	}
	return strings.Join(parts, " and ")
}

// allWell reports whether all ranks, of size in all, have told that they ended, and none of a failure.
func (w *words) allWell(size int) bool {
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
	return len(w.ranks) == size
}

// on describes the ranks of a host.
func (w *words) on(host string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return phrase.Ranks(w.running(host))
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
func (h *Handover) look() (laggards []int, over bool) {
	for _, host := range h.words.look() {
		h.console.Say("no word from %s for %v: %s there may run on, cut off; the job ends (--hang-timeout 0 waits for ever)",
			host, silence, h.words.on(host))
		over = true
	}
	if _, text, _ := h.words.unreached(h.list.hosts); text != "" {
		if h.unreached++; time.Duration(h.unreached)*watchdog.Interval > unreachedLimit {
			h.console.Say("the job ends: %s", text)
			over = true
		}
	}
	if missing := h.words.missing(h.opts.Size()); h.launcher.WaitsForLost && len(missing) > 0 {
		if h.unplaced++; time.Duration(h.unplaced)*watchdog.Interval > placedLimit {
			h.console.Say("the job ends: %s waits for %s, not started %v after others; try ssh to each of %s (--hang-timeout 0 waits for ever)",
				h.launcher, phrase.Ranks(missing), placedLimit, hostNames(h.list.hosts))
			over = true
		}
	}
	if h.words.allWell(h.opts.Size()) {
		if h.lingered++; time.Duration(h.lingered)*watchdog.Interval == lingerLimit {
			h.console.Say("all ranks have ended well, and %s goes on: something that they have started holds their output; end it, "+
				"and have it write elsewhere", h.launcher)
		}
	}
	if it, ok := h.words.first(); ok && it.Kind == job.Ended {
		h.failed++
		wait := h.opts.Grace
		if h.words.gone(it.Rank) || !h.words.busy() { // the others do not know, and have nothing to say
			wait = watchdog.Interval
		}
		over = over || time.Duration(h.failed)*watchdog.Interval > wait
	}
	return nil, over
}
