package comm

import "fmt"

// A Fingerprint is what ranks must agree on in one collective, in two words
// that a backend can publish and compare. It never holds the call site: ranks
// may run different binaries.
type Fingerprint struct {
	// What is kind, operation, element type (8 bits each), root (16 bits) and,
	// for a Func, 24 bits of the hash of its name and element size; for a part of a
	// call on device memory, those of the call's own count.
	What uint64
	// Count is the number of elements where all ranks must have the same. For a
	// count vector that all must have, the top bit is set over its hash.
	Count uint64
}

const vectorBit = 1 << 63

// countsHash stands before the hash of a count vector.
const countsHash = "counts #"

// Fingerprint returns the call's fingerprint. That of a Send equals that of
// the Recv it belongs to.
func (c *Call) Fingerprint() Fingerprint {
	if c.of != nil {
		return c.of.Fingerprint()
	}
	kind, root := c.Kind, 0
	if kind.PointToPoint() {
		kind = SendKind
	} else if kind.Rooted() {
		root = c.Root
	}
	f := Fingerprint{What: uint64(kind) | uint64(c.DType())<<16 | uint64(uint16(root))<<24}
	if kind.Reduces() {
		f.What |= uint64(c.Op) << 8
		if c.Op == Custom && c.Func != nil {
			f.What |= uint64(c.Func.hash) << 40
		}
	}
	if c.whole > 0 { // only calls without a Func come in parts
		f.What |= uint64(uint32(c.whole*2654435761)>>8) << 40
	}
	switch kind {
	case AllGatherVKind:
		f.Count = hashCounts(c.DstCounts)
	case ReduceScatterVKind:
		f.Count = hashCounts(c.SrcCounts)
	case GatherVKind, ScatterVKind, AllToAllVKind, BarrierKind:
	case ScatterKind, ReduceScatterKind, BroadcastKind:
		f.Count = uint64(c.Dst.Count)
	case SendKind:
		f.Count = uint64(c.Dst.Count + c.Src.Count)
	default:
		f.Count = uint64(c.Src.Count)
	}
	return f
}

// hashCounts is FNV-1a over the counts, by words.
func hashCounts(counts []int) uint64 {
	h := uint64(14695981039346656037)
	for _, n := range counts {
		h = (h ^ uint64(n)) * 1099511628211
	}
	return h | vectorBit
}

// String describes what the words say, whatever they are.
func (f Fingerprint) String() string {
	kind, op, dt := Kind(f.What), Op(f.What>>8), DType(f.What>>16)
	s := kind.String()
	if kind.Reduces() {
		s += " " + op.String()
	}
	if kind != BarrierKind {
		switch {
		case f.Count&vectorBit != 0:
			s += fmt.Sprintf(" %v[%s%04x]", dt, countsHash, uint16(f.Count))
		case kind == GatherVKind || kind == ScatterVKind || kind == AllToAllVKind:
			s += " " + dt.String()
		default:
			s += fmt.Sprintf(" %v[%d]", dt, f.Count)
		}
	}
	if kind.Rooted() {
		s += fmt.Sprintf(" root %d", uint16(f.What>>24))
	}
	return s
}
