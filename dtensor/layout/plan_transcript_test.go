package layout

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestPlanTranscripts(t *testing.T) {
	runTranscripts(t, "plan*.txt", func(c command) string {
		switch c.name {
		// plan prints the plan, and what each step receives at most.
		// mesh, shape, from, to; bytes of an element (4); latency of a collective.
		case "plan":
			from, err := parseLayout(c.args["mesh"], c.args["shape"], c.args["from"])
			if err != nil {
				return err.Error()
			}
			to, err := parseLayout(c.args["mesh"], c.args["shape"], c.args["to"])
			if err != nil {
				return err.Error()
			}
			elemBytes, err := strconv.Atoi(c.arg("bytes", "4"))
			if err != nil {
				return err.Error()
			}
			var costs Costs
			if l, ok := c.args["latency"]; ok {
				costs = DefaultCosts()
				if costs.Latency, err = time.ParseDuration(l); err != nil {
					return err.Error()
				}
			}
			plan, err := NewPlan(from, to, elemBytes, costs)
			if err != nil {
				return err.Error()
			}
			return fmt.Sprintf("%v\nreceives %d bytes", plan, plan.MaxBytes())
		// shards prints what every rank holds. mesh, shape, at (the placements).
		case "shards":
			l, err := parseLayout(c.args["mesh"], c.args["shape"], c.args["at"])
			if err != nil {
				return err.Error()
			}
			var b strings.Builder
			for pos := range l.Axes().Count() {
				coord := l.Axes().Coord(pos)
				fmt.Fprintf(&b, "%v: offset %v shape %v\n", coord, l.Offset(coord), l.LocalShape(coord))
			}
			return b.String()
		// boxes prints what each rank sends in the steps of a plan. As plan.
		case "boxes":
			from, err := parseLayout(c.args["mesh"], c.args["shape"], c.args["from"])
			if err != nil {
				return err.Error()
			}
			to, err := from.With(mustPlacements(t, c.args["to"])...)
			if err != nil {
				return err.Error()
			}
			plan, err := NewPlan(from, to, 4, Costs{})
			if err != nil {
				return err.Error()
			}
			var b strings.Builder
			for i := range plan.Steps {
				s := &plan.Steps[i]
				fmt.Fprintf(&b, "%d. %v\n", i+1, s)
				for pos := range from.Axes().Count() {
					coord := from.Axes().Coord(pos)
					for _, x := range s.Sends(coord) {
						fmt.Fprintf(&b, "%v to member %d: %v at %v, from %v to %v\n", coord, x.Peer, x.Size, x.Global, x.Src, x.Dst)
					}
				}
			}
			return b.String()
		}
		return fmt.Sprintf("unknown command %q", c.name)
	})
}

func mustPlacements(t *testing.T, s string) []Placement {
	t.Helper()
	p, err := parsePlacements(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
