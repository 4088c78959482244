package comm

import (
	"fmt"
	"strings"
)

// A Count is how often something was called, and with how much.
type Count struct {
	Calls int
	Bytes int // handed in by this rank, see Call.Bytes
}

func (n *Count) add(more Count) {
	n.Calls += more.Calls
	n.Bytes += more.Bytes
}

// Stats are the calls that this rank has made on all communicators of a world.
type Stats struct {
	Kinds  [Kinds]Count
	Causes map[Cause]Count // calls whose Cause is not ""
}

func newStats() Stats { return Stats{Causes: map[Cause]Count{}} }

// A Cause is a kind of call for a cause.
type Cause struct {
	Kind  Kind
	Cause string
}

// Total returns the sum over the kinds.
func (s Stats) Total() Count {
	var t Count
	for _, n := range s.Kinds {
		t.add(n)
	}
	return t
}

// String lists the kinds that were called, "AllReduce×2 4096 B, Barrier×1 0 B".
func (s Stats) String() string {
	return s.list(func(k Kind, n Count) string { return fmt.Sprintf("%v×%d %d B", k, n.Calls, n.Bytes) })
}

// Calls is String without the bytes, "AllReduce×2, Barrier×1".
func (s Stats) Calls() string {
	return s.list(func(k Kind, n Count) string { return fmt.Sprintf("%v×%d", k, n.Calls) })
}

func (s Stats) list(format func(Kind, Count) string) string {
	var parts []string
	for k, n := range s.Kinds {
		if n.Calls > 0 {
			parts = append(parts, format(Kind(k), n))
		}
	}
	return strings.Join(parts, ", ")
}
