package control

import (
	"fmt"
	"strings"
)

// Words are the names of what a Call's two words say (see comm.Fingerprint), for
// the launcher, which knows no collectives.
type Words struct {
	Kinds, Ops, DTypes []string // by number; at most 32, of at most 16 bytes
	Rooted             uint32   // bit k: kind k has a root
}

const (
	maxWords  = 32
	wordBytes = 16
)

// words are Words in the header. All ranks of a job write the same.
type words struct {
	tables [3][maxWords][wordBytes]byte
	rooted uint32
	_      [60]byte
}

// SetWords says how calls are to be read.
func (s *Segment) SetWords(w Words) {
	to := &s.header().words
	for i, table := range [][]string{w.Kinds, w.Ops, w.DTypes} {
		for j, word := range table[:min(len(table), maxWords)] {
			copy(to.tables[i][j][:], word)
		}
	}
	to.rooted = w.Rooted
}

// vectorBit is set in a Call's Count if the rest is the hash of a count vector.
const vectorBit = 1 << 63

// Describe returns a call in words, "AllReduce sum float32[1024]"; "" if it has none.
func (s *Segment) Describe(c Call) string {
	w := &s.header().words
	word := func(table int, n uint64) string {
		text := w.tables[table][n%maxWords][:]
		return strings.TrimRight(readText(text, wordBytes), "\x00")
	}
	kind := c.What & 0xff
	text := word(0, kind)
	if op := c.What >> 8 & 0xff; op != 0 {
		text += " " + word(1, op)
	}
	if dtype := c.What >> 16 & 0xff; dtype != 0 {
		text += " " + word(2, dtype)
		switch {
		case c.Count&vectorBit != 0:
			text += fmt.Sprintf("[counts #%04x]", uint16(c.Count))
		case c.Count > 0:
			text += fmt.Sprintf("[%d]", c.Count)
		}
	}
	if kind < maxWords && w.rooted>>kind&1 != 0 {
		text += fmt.Sprintf(" root %d", uint16(c.What>>24))
	}
	return text
}
