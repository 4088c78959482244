package launcher

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/gorun-spmd/gorun/internal/control"
)

// maxStacks is of how many ranks the stacks are printed.
const maxStacks = 4

// look is the supervisor's: it looks for a hang, and describes the one it finds.
func (a *attempt) look(w *watchdog) (laggards []int, hung bool) {
	now := time.Now()
	h := w.look(now, len(a.plan.ranks))
	if h == nil {
		return nil, false
	}
	more := ""
	if len(h.laggards) > 0 {
		shown := h.laggards[:min(maxStacks, len(h.laggards))]
		more = "; the stacks of " + naming(slices.Sorted(slices.Values(shown))) + ":"
		laggards = shown
	}
	a.console.write(a.console.name() + ": the job hangs: " + h.why() + "\n" + h.table(a.segment, now) + a.console.name() + ": ending it" + more + "\n")
	return laggards, true
}

// why says what is wrong, in words.
func (h *hang) why() string {
	switch {
	case h.orphan >= 0:
		return fmt.Sprintf("rank %d waits for rank %d, which has ended", h.orphan, h.ended)
	case len(h.circle) == 1:
		return fmt.Sprintf("rank %d waits for itself", h.circle[0])
	case len(h.circle) > 0:
		var b strings.Builder
		for i, r := range h.circle {
			if i == 8 && len(h.circle) > 10 {
				fmt.Fprintf(&b, "… (%d ranks) ", len(h.circle))
				break
			}
			fmt.Fprintf(&b, "rank %d waits for ", r)
		}
		return fmt.Sprintf("%srank %d", b.String(), h.circle[0])
	}
	return fmt.Sprintf("nothing has moved for %v (--hang-timeout)", h.still.Round(time.Second))
}

// A row of the table is what some ranks do, in the same words.
type row struct {
	ranks  []int
	lines  []string
	oldest []time.Time // by line; zero: not known
}

// table has a line or more for each rank, those that say the same together.
func (h *hang) table(segment *control.Segment, now time.Time) string {
	names := commNames(h.seen, segment)
	var rows []*row
	byText := map[string]*row{}
	for r := range h.seen {
		lines, since := h.describe(r, names, segment)
		text := strings.Join(lines, "\n")
		it := byText[text]
		if it == nil {
			it = &row{lines: lines, oldest: since}
			byText[text] = it
			rows = append(rows, it)
		}
		it.ranks = append(it.ranks, r)
		for i := range since {
			if since[i].Before(it.oldest[i]) {
				it.oldest[i] = since[i]
			}
		}
	}
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  rank\tstate\tcall\tnumber\tat\twaits for\tsince")
	for _, it := range rows {
		who := list(it.ranks)
		for i, line := range it.lines {
			since := ""
			if !it.oldest[i].IsZero() {
				since = max(0, now.Sub(it.oldest[i])).Round(100*time.Millisecond).String() + " ago"
			}
			fmt.Fprintf(w, "  %s\t%s\t%s\n", who, line, since)
			who = ""
		}
	}
	_ = w.Flush()
	var table strings.Builder
	for line := range bytes.Lines(b.Bytes()) {
		table.Write(bytes.TrimRight(line, " \n"))
		table.WriteByte('\n')
	}
	return table.String()
}

// describe is a rank's part of the table, without its number and the times: what
// its program does, and then its asynchronous calls that wait. since has the times.
func (h *hang) describe(r int, names map[uint64]string, segment *control.Segment) (lines []string, since []time.Time) {
	s := &h.seen[r]
	state := "in its own code"
	switch {
	case s.ended:
		state = "ended"
	case s.stopped:
		state = "stopped (SIGSTOP)"
	}
	if s.ended || !s.waits() {
		call, number := "after no call", ""
		if s.calls > 0 {
			call, number = "after "+cmp.Or(printable(segment.Describe(s.last)), "a call"), names[s.last.Comm]
			if s.last.Seq > 0 {
				number += fmt.Sprintf(" #%d", s.last.Seq)
			}
		}
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t\t", state, call, number))
		since = append(since, h.since[r])
	}
	if s.ended {
		return lines, since
	}
	waits := slices.SortedStableFunc(slices.Values(s.Waits), func(a, b control.Wait) int {
		return cmp.Or(-compareBool(a.Attended, b.Attended), a.Since.Compare(b.Since))
	})
	for _, it := range waits {
		state := "waits"
		switch {
		case s.stopped:
			state = "stopped (SIGSTOP)"
		case !it.Attended:
			state = "waits, async"
		}
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s\trank %d", state, printable(it.Text), number(&it, names), printable(it.Site), it.On))
		since = append(since, it.Since)
	}
	return lines, since
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// number says which call of which communicator a rank waits in. Messages are not counted.
func number(w *control.Wait, names map[uint64]string) string {
	if strings.HasPrefix(w.Text, "Send") || strings.HasPrefix(w.Text, "Recv") {
		return names[w.Comm]
	}
	return fmt.Sprintf("%s #%d", names[w.Comm], w.Seq)
}

// commNames names the communicators that ranks were seen in, by age.
func commNames(seen []sighting, segment *control.Segment) map[uint64]string {
	var comms []uint64
	for r := range seen {
		if seen[r].calls > 0 {
			comms = append(comms, seen[r].last.Comm)
		}
		for _, w := range seen[r].Waits {
			comms = append(comms, w.Comm)
		}
	}
	slices.Sort(comms)
	names := map[uint64]string{}
	groups := 0
	for _, c := range slices.Compact(comms) {
		if segment.IsWorld(c) {
			names[c] = "world"
			continue
		}
		names[c] = "group " + letters(groups)
		groups++
	}
	return names
}

// letters numbers things a, b, …, z, aa, ab, …
func letters(n int) string {
	last := string(rune('a' + n%26))
	if n < 26 {
		return last
	}
	return letters(n/26-1) + last
}

// printable is text that a rank may have chosen, fit for one column of a table.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
	if runes := []rune(text); len(runes) > 60 {
		text = string(runes[:59]) + "…"
	}
	return text
}

// newWatchdog watches the ranks that sup supervises.
func (a *attempt) newWatchdog(sup *supervisor) *watchdog {
	buf := make([]byte, 1024)
	return &watchdog{
		limit: a.opts.hangTimeout,
		see: func(r int) sighting {
			s := sighting{Waiting: a.segment.Waiting(r), calls: a.segment.Calls(r), ended: sup.ends[r].ended}
			if last := a.segment.Last(r); len(last) > 0 {
				s.last = last[len(last)-1]
			}
			s.step, _ = a.segment.Step(r)
			if p, ok := readProcess(sup.ends[r].pid, buf); ok {
				s.stopped = p.state == 'T' || p.state == 't'
			}
			return s
		},
		busy: func(ranks []int) bool {
			pids := make([]int, len(ranks))
			for i, r := range ranks {
				pids[i] = sup.ends[r].pid
			}
			return busy(pids)
		},
	}
}
