package launcher

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/forecast"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/launcher/phrase"
)

// mostShares is how much of the critical path, and how many kernels, a person is shown.
const mostShares = 8

// writeTime prints the predicted time of a step.
func writeTime(w io.Writer, r *forecast.Report) {
	p := r.Time
	if p == nil {
		return
	}
	ranks := ints.Counted(min(r.Net[0].Ranks, r.Size), "rank")
	fmt.Fprintf(w, "\na step takes %s, predicted; %s on a host of %s%s\n", phrase.Seconds(p.Seconds), ranks,
		ints.Counted(r.Machine.Cores, "core"), levels(r.Net))
	writeRankTimes(w, p)
	writePath(w, p)
	writeKernels(w, r)
	fmt.Fprintln(w, leftOut)
}

// writeRankTimes prints what ranks do in a step, those that are alike in one line.
func writeRankTimes(w io.Writer, p *forecast.Prediction) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  ranks\tfor instance\tcomputes\tcommunicates\twaits")
	type times struct{ compute, communication, waits string }
	var order []times
	count, first := map[times]int{}, map[times]int{}
	for _, k := range p.Ranks {
		key := times{phrase.Seconds(k.Compute), phrase.Seconds(k.Communication), phrase.Seconds(k.Waits)}
		if count[key] == 0 {
			order, first[key] = append(order, key), k.Rank
		}
		count[key] += k.Count
	}
	for i, key := range order {
		if i == mostRows {
			fmt.Fprintf(t, "  … and %s more\n", ints.Counted(len(order)-i, "row"))
			break
		}
		fmt.Fprintf(t, "  %d\trank %d\t%s\t%s\t%s\n", count[key], first[key], key.compute, key.communication, key.waits)
	}
	t.Flush()
}

// writePath prints the critical path of a step.
func writePath(w io.Writer, p *forecast.Prediction) {
	fmt.Fprintf(w, "critical path, to the end of rank %d\n", p.Last)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	rest := 0.0
	for i, s := range p.Path {
		if i >= mostShares {
			rest += s.Seconds
			continue
		}
		fmt.Fprintf(t, "  %s\t%.0f %%\t%s\t%s\t%s\n", phrase.Seconds(s.Seconds), 100*s.Seconds/p.Seconds, s.What, s.Group, s.Cause)
	}
	if rest > 0 {
		fmt.Fprintf(t, "  %s\t%.0f %%\tother calls\n", phrase.Seconds(rest), 100*rest/p.Seconds)
	}
	t.Flush()
}

// writeKernels prints the kernels of the rank at whose end the critical path ends, or of the first one.
func writeKernels(w io.Writer, r *forecast.Report) {
	last := r.Ranks[max(0, slices.IndexFunc(r.Ranks, func(k *forecast.Rank) bool { return k.Rank == r.Time.Last }))]
	fmt.Fprintf(w, "kernels of rank %d\n", last.Rank)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, k := range last.Kernels {
		if i == mostShares {
			break
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\n", phrase.Seconds(k.Seconds), ints.Counted(k.Count, "call"), k.Name)
	}
	t.Flush()
}

// leftOut is what no predicted time has.
const leftOut = "left out: what other programs take of the cores"

// levels describes the levels above the host.
func levels(net forecast.Net) (text string) {
	for _, l := range net[1:] {
		text += fmt.Sprintf(", %s %s and %s/s", l.Name, phrase.Seconds(l.Latency), sizeOf(int(l.Bandwidth)))
	}
	return text
}

// writeForecastTrace writes the predicted step as a trace, each rank that ran as one.
func writeForecastTrace(path string, r *forecast.Report, s *forecast.Simulation) error {
	clock := func(seconds float64) int64 { return 1 + int64(seconds*float64(time.Second)) }
	var parts []*control.TracePart
	for i, k := range r.Ranks {
		p := &control.TracePart{Rank: k.Rank, Host: "a predicted host", Began: clock(0), Ended: clock(r.Time.Seconds)}
		type channel struct {
			group    string
			from, to int // of messages
		}
		made := map[channel]uint64{} // by which the sides of a call find each other
		for e, ev := range k.Timeline.Events {
			c, g, m := &k.Timeline.Calls[ev.Call], &k.Timeline.Groups[ev.Group], &s.Moments[i][e]
			on, shape := channel{g.Key, -1, -1}, control.TraceAll
			switch c.Kind {
			case "Send":
				on.from, on.to, shape = k.Rank, ev.Peer, control.TraceSend
			case "Recv":
				on.from, on.to, shape = ev.Peer, k.Rank, control.TraceRecv
			}
			made[on]++
			p.Records = append(p.Records, control.TraceRecord{Start: clock(m.Come), End: clock(m.End), Call: uint64(e + 1), Number: made[on],
				Bytes: int64(ev.Bytes), Name: p.AddText(c.Kind), Comm: p.AddText(g.Key), Cause: p.AddText(c.Cause), Site: p.AddText(c.Line),
				Size: int32(g.Size), Peer: int32(ev.Peer), Shape: shape})
		}
		p.Written = uint64(len(p.Records))
		parts = append(parts, p)
	}
	return writeFile(path, func(w io.Writer) error { return control.WriteTrace(w, parts) })
}
