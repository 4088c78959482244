package watchdog

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/launcher/phrase"
)

// Why says what is wrong, in words.
func (h *Hang) Why() string {
	var b strings.Builder
	b.WriteString(h.who())
	for _, r := range h.Laggards[:min(maxUntaken, len(h.Laggards))] {
		for _, w := range h.seen[r].Waits {
			if w.Untaken != "" {
				fmt.Fprintf(&b, "; rank %d waits in %s, and %s", r, phrase.Clean(w.Text), phrase.Clean(w.Untaken))
			}
		}
	}
	return b.String()
}

// maxUntaken is of how many ranks Why names messages.
const maxUntaken = 4

// who says which ranks wait for which.
func (h *Hang) who() string {
	switch {
	case h.orphan >= 0:
		return fmt.Sprintf("rank %d waits for rank %d, which has ended", h.orphan, h.ended)
	case h.stuck >= 0:
		return fmt.Sprintf("rank %d can do nothing more: it is in no call, and its goroutines wait for each other", h.stuck)
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
		fmt.Fprintf(&b, "rank %d", h.circle[0])
		if h.sends() {
			b.WriteString("; they all send first: use SendRecv, which sends and receives at once")
		}
		return b.String()
	}
	return fmt.Sprintf("nothing has moved for %v (%s)", h.still.Round(time.Second), cmp.Or(h.setting, "--hang-timeout"))
}

// sends reports whether all ranks of the circle wait in a Send.
func (h *Hang) sends() bool {
	return !slices.ContainsFunc(h.circle, func(r int) bool {
		return !slices.ContainsFunc(h.seen[r].Waits, func(w control.Wait) bool { return w.Attended && sends(w.Text) })
	})
}

// sends reports whether a call, in words, is a Send of package comm or of comm/message.
func sends(call string) bool {
	return strings.HasPrefix(strings.TrimPrefix(call, "message."), "Send ")
}

// A row of the table is what some ranks do, in the same words.
type row struct {
	ranks  []int
	lines  []string
	oldest []time.Time // by line; zero: not known
}

// Table has a line or more for each rank, those that say the same together.
func (h *Hang) Table(segment *control.Segment, now time.Time) string {
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
		who := phrase.Ranges(it.ranks)
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
func (h *Hang) describe(r int, names map[uint64]string, segment *control.Segment) (lines []string, since []time.Time) {
	s := &h.seen[r]
	state := "in its own code"
	switch {
	case s.Ended:
		state = "ended"
	case s.Stopped:
		state = "stopped (SIGSTOP)"
	}
	if s.Ended || !s.waits() {
		call, number := "after no call", ""
		if s.Calls > 0 {
			call, number = "after "+cmp.Or(phrase.Printable(segment.Describe(s.Last)), "a call"), names[s.Last.Comm]
			if s.Last.Seq > 0 {
				number += fmt.Sprintf(" #%d", s.Last.Seq)
			}
		}
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t\t", state, call, number))
		since = append(since, h.since[r])
	}
	if s.Ended {
		return lines, since
	}
	waits := slices.SortedStableFunc(slices.Values(s.Waits), func(a, b control.Wait) int {
		return cmp.Or(-compareBool(a.Attended, b.Attended), a.Since.Compare(b.Since))
	})
	for _, it := range waits {
		state := "waits"
		switch {
		case s.Stopped:
			state = "stopped (SIGSTOP)"
		case !it.Attended:
			state = "waits, async"
		}
		on := ""
		switch {
		case it.On == control.Anyone:
			on = "any rank"
		case it.On != control.Nobody:
			on = fmt.Sprintf("rank %d", it.On)
		}
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s\t%s", state, phrase.Printable(it.Text), number(&it, names),
			phrase.Printable(it.Site), on))
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
	if w.Seq == 0 && w.Group != "" { // of comm/message or comm/window
		return phrase.Printable(w.Group)
	}
	if strings.HasPrefix(w.Text, "Send") || strings.HasPrefix(w.Text, "Recv") {
		return names[w.Comm]
	}
	return fmt.Sprintf("%s #%d", names[w.Comm], w.Seq)
}

// commNames names the communicators that ranks were seen in by their ranks, where a rank that waits says so. Those that have no other
// name, or the same one, are told apart by letters, by age.
func commNames(seen []Sighting, segment *control.Segment) map[uint64]string {
	groups := map[uint64]string{}
	for r := range seen {
		if seen[r].Calls > 0 {
			c := seen[r].Last.Comm
			groups[c] += "" // so that it has a name
		}
		for _, w := range seen[r].Waits {
			if w.Seq > 0 || w.Group == "" {
				groups[w.Comm] = cmp.Or(phrase.Printable(w.Group), groups[w.Comm])
			}
		}
	}
	names, alike := map[uint64]string{}, map[string]int{}
	for _, c := range slices.Sorted(maps.Keys(groups)) {
		name := groups[c]
		switch n := alike[name]; {
		case segment.IsWorld(c):
			names[c] = "world"
			continue
		case name == "":
			names[c] = "group " + letters(n)
		case n == 0:
			names[c] = name
		default:
			names[c] = name + " " + letters(n)
		}
		alike[name]++
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
