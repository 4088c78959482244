package backend

import (
	"fmt"

	"github.com/gorun-spmd/gorun/comm/internal/structs"
	"github.com/gorun-spmd/gorun/internal/fold"
)

// A Fingerprint is what ranks must agree on in one collective, in two words
// that a backend can publish and compare. It never holds the call site: ranks
// may run different binaries.
type Fingerprint struct {
	// What holds the kind, operation and element type (8 bits each), the root (16 bits)
	// and 24 bits of a hash: of a Func's name and element size, of a struct type's name
	// and size, in a Piece of the length that it was made with, and of the call's Facts.
	What uint64
	// Count is the number of elements, if it must be the same on all ranks. If a whole
	// vector of counts must be, Count is its hash with the top bit set.
	Count uint64
}

const vectorBit = 1 << 63

// countsHash is the text before the hash of a count vector.
const countsHash = "counts #"

// Fingerprint returns the call's fingerprint. That of a Send equals that of
// the Recv it belongs to.
func (c *Call) Fingerprint() Fingerprint {
	if c.of != nil {
		return c.of.Fingerprint()
	}
	kind, shape, root := c.Kind, c.Kind.Shape(), 0
	if shape.Pattern == PatternMessage {
		kind = SendKind
	} else if shape.Root != NoRoot {
		root = c.Root
	}
	f := Fingerprint{What: uint64(kind) | uint64(c.DType())<<16 | uint64(uint16(root))<<24}
	if shape.Pattern >= PatternReduce {
		f.What |= uint64(c.Op) << 8
	}
	if c.Op == fold.Custom || c.Dst.of|c.Src.of != 0 || c.whole > 0 {
		f.What |= uint64(c.hash()) << 40
	}
	f.What ^= uint64(c.Facts) << 40
	f.Count = c.agreed()
	return f
}

// agreed returns the number of elements that must be the same on all ranks, or the hash of the counts that must be.
// It is 0 if there is nothing of the kind.
func (c *Call) agreed() uint64 {
	switch s := c.Kind.Shape(); {
	case s.Pairwise() || s.Pattern == PatternBarrier:
		return 0
	case s.Dst == Counted:
		return HashCounts(c.DstCounts)
	case s.Src == Counted:
		return HashCounts(c.SrcCounts)
	case s.Dst == Whole && s.Src != Whole:
		return uint64(c.Dst.Count)
	}
	return uint64(c.Src.Count)
}

// hash returns the hash of c's Func, struct type and Piece, of those that it has.
func (c *Call) hash() (h uint32) {
	if c.Op == fold.Custom && c.Func != nil && c.Kind.Reduces() {
		h = c.Func.hash
	}
	if c.Dst.of|c.Src.of != 0 && c.Op != fold.Custom {
		h |= c.structType().Hash
	}
	if c.whole > 0 { // only calls without a Func are divided into pieces
		h |= uint32(c.whole*2654435761) >> 8
	}
	return h
}

// HashCounts is FNV-1a over the counts, by words.
func HashCounts(counts []int) uint64 {
	h := uint64(14695981039346656037)
	for _, n := range counts {
		h = (h ^ uint64(n)) * 1099511628211
	}
	return h | vectorBit
}

// String describes the fingerprint. Any two words will do.
func (f Fingerprint) String() string { return f.describe(nil, int(uint16(f.What>>24))) }

// describe is String for a call whose elements have type t; nil: a DType. The fingerprint has not all of root.
func (f Fingerprint) describe(t *structs.Type, root int) string {
	kind, op, elements, count := Kind(f.What), Op(f.What>>8), DType(f.What>>16).String(), f.Count
	if t != nil {
		elements, count = t.Name, count/uint64(t.Size)
	}
	s := kind.String()
	if kind.Reduces() {
		s += " " + op.String()
	}
	if kind.Shape().Pattern != PatternBarrier {
		switch {
		case f.Count&vectorBit != 0:
			s += fmt.Sprintf(" %s[%s%04x]", elements, countsHash, uint16(f.Count))
		case kind.Shape().Pairwise():
			s += " " + elements
		default:
			s += fmt.Sprintf(" %s[%d]", elements, count)
		}
	}
	if kind.Rooted() {
		s += fmt.Sprintf(" root %d", root)
	}
	return s
}
