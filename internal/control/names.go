package control

import (
	"fmt"
	"strings"
)

// Names are the names of kinds, operations and element types, by their numbers in a Call (see
// backend.Fingerprint). The launcher, which knows no collectives, prints calls by them.
type Names struct {
	Kinds, Ops, DTypes []string // by number; at most 32, of at most 16 bytes
	Rooted             uint32   // bit k: kind k has a root
}

const (
	maxNames  = 32
	nameBytes = 16
)

// names are Names in the header. All ranks of a job write the same.
type names struct {
	tables [3][maxNames][nameBytes]byte
	rooted uint32
	_      [60]byte
}

// SetNames sets the names by which Describe prints calls.
func (s *Segment) SetNames(n Names) {
	to := &s.header().names
	for i, table := range [][]string{n.Kinds, n.Ops, n.DTypes} {
		for j, name := range table[:min(len(table), maxNames)] {
			copy(to.tables[i][j][:], name)
		}
	}
	to.rooted = n.Rooted
}

// vectorBit is set in a Call's Count if the rest is the hash of a count vector.
const vectorBit = 1 << 63

// Describe returns a call as text, "AllReduce sum float32[1024]"; "" if SetNames was not called.
func (s *Segment) Describe(c Call) string {
	names := &s.header().names
	name := func(table int, n uint64) string {
		text := names.tables[table][n%maxNames][:]
		return strings.TrimRight(readText(text, nameBytes), "\x00")
	}
	kind := c.What & 0xff
	text := name(0, kind)
	if op := c.What >> 8 & 0xff; op != 0 {
		text += " " + name(1, op)
	}
	if dtype := c.What >> 16 & 0xff; dtype != 0 {
		text += " " + name(2, dtype)
		switch {
		case c.Count&vectorBit != 0:
			text += fmt.Sprintf("[counts #%04x]", uint16(c.Count))
		case c.Count > 0:
			text += fmt.Sprintf("[%d]", c.Count)
		}
	}
	if kind < maxNames && names.rooted>>kind&1 != 0 {
		text += fmt.Sprintf(" root %d", uint16(c.What>>24))
	}
	return text
}
