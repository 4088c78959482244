package launcher

import (
	"bytes"
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

// table has a line for each rank, those that say the same together.
func (h *hang) table(segment *control.Segment, now time.Time) string {
	names := commNames(h.seen, segment)
	type row struct {
		text   string
		ranks  []int
		oldest time.Time
	}
	var rows []*row
	byText := map[string]*row{}
	for r := range h.seen {
		s := &h.seen[r]
		text := s.describe(names)
		it := byText[text]
		if it == nil {
			it = &row{text: text}
			byText[text] = it
			rows = append(rows, it)
		}
		it.ranks = append(it.ranks, r)
		if s.waits && (it.oldest.IsZero() || s.wait.Since.Before(it.oldest)) {
			it.oldest = s.wait.Since
		}
	}
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  rank\tstate\tcall\tnumber\tat\twaits for\tsince")
	for _, it := range rows {
		since := ""
		if !it.oldest.IsZero() {
			since = max(0, now.Sub(it.oldest)).Round(100*time.Millisecond).String() + " ago"
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\n", list(it.ranks), it.text, since)
	}
	_ = w.Flush()
	var table strings.Builder
	for line := range bytes.Lines(b.Bytes()) {
		table.Write(bytes.TrimRight(line, " \n"))
		table.WriteByte('\n')
	}
	return table.String()
}

// describe is a rank's line of the table, without its number and the time.
func (s *sighting) describe(names map[uint64]string) string {
	switch {
	case s.ended:
		return "ended\t\t\t\t"
	case s.stopped && s.waits:
		return fmt.Sprintf("stopped (SIGSTOP)\t%s\t%s\t%s\trank %d", printable(s.wait.Text), s.number(names), printable(s.wait.Site), s.wait.On)
	case s.stopped:
		return fmt.Sprintf("stopped (SIGSTOP)\tafter %s\t\t\t", count(int(s.calls), "call"))
	case s.waits:
		return fmt.Sprintf("waits\t%s\t%s\t%s\trank %d", printable(s.wait.Text), s.number(names), printable(s.wait.Site), s.wait.On)
	}
	return fmt.Sprintf("in its own code\tafter %s\t\t\t", count(int(s.calls), "call"))
}

// number says which call of which communicator s waits in. Messages are not counted.
func (s *sighting) number(names map[uint64]string) string {
	if strings.HasPrefix(s.wait.Text, "Send") || strings.HasPrefix(s.wait.Text, "Recv") {
		return names[s.wait.Comm]
	}
	return fmt.Sprintf("%s #%d", names[s.wait.Comm], s.wait.Seq)
}

// commNames numbers the communicators that ranks wait in, by age.
func commNames(seen []sighting, segment *control.Segment) map[uint64]string {
	var comms []uint64
	for r := range seen {
		if seen[r].waits {
			comms = append(comms, seen[r].wait.Comm)
		}
	}
	slices.Sort(comms)
	names := map[uint64]string{}
	for _, c := range slices.Compact(comms) {
		if segment.IsWorld(c) {
			names[c] = "world"
		} else {
			names[c] = fmt.Sprintf("group %c", 'a'+len(names)%26)
		}
	}
	return names
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
			s := sighting{calls: a.segment.Calls(r), ended: sup.ends[r].ended}
			s.wait, s.waits = a.segment.Waiting(r)
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
