package comm

import (
	"errors"
	"fmt"
)

// A Call is one collective as data: what the generic functions build and a
// Backend carries out.
//
//	kind             Dst                  Src                   counts
//	AllReduce        n                    n, may be Dst
//	Reduce           n, at Root           n
//	AllGather        Size·n               n
//	AllGatherV       Σ DstCounts          DstCounts[rank]       DstCounts, the same on all ranks
//	Gather           Size·n, at Root      n
//	GatherV          Σ DstCounts, at Root any                   DstCounts, at Root
//	Scatter          n                    Size·n, at Root
//	ScatterV         any                  Σ SrcCounts, at Root  SrcCounts, at Root
//	ReduceScatter    n                    Size·n
//	ReduceScatterV   SrcCounts[rank]      Σ SrcCounts           SrcCounts, the same on all ranks
//	AllToAll         Size·n               Size·n
//	AllToAllV        Σ DstCounts          Σ SrcCounts           both; SrcCounts[q] of rank p is DstCounts[p] of rank q
//	Broadcast        n
//	Barrier
//	Send                                  n                     Root is the receiver
//	Recv             n                                          Root is the sender
//	Split            Size·n               n                     as AllGather
//
// Counts are in elements. Dst and Src must not overlap, except that an
// AllReduce's may be the same.
//
// The parts of a buffer lie one after another, or, in the calls whose counts all
// ranks give, side by side: a buffer of R rows is a row-major matrix of that many
// rows, of which a part of n elements is n/R columns. Only what this rank does with
// its own buffer depends on it, so the ranks may differ. See Comm.TakesRows.
type Call struct {
	Kind                 Kind
	Op                   Op
	Func                 *Func // the operation if Op is Custom, else nil
	Root                 int
	Dst, Src             Buffer
	DstCounts, SrcCounts []int
	DstRows, SrcRows     int    // above 1, the parts of that buffer are columns of so many rows
	Cause                string // which operator and plan step asked for it, for statistics and traces
	site                 *site  // where an asynchronous call was started
	queue                *queue // that an asynchronous call is in
	whole                int    // elements of the call of which this is a part, see staged; 0 for a whole call
	of                   *Call  // what this is made for, whose fingerprint it has, see inner; nil for itself
}

// inner returns a call that is a step of c: ranks that do not mean the same one are
// told of c, and where it was made.
func (c *Call) inner(kind Kind, dst, src Buffer) Call {
	return Call{Kind: kind, Dst: dst, Src: src, Cause: c.Cause, of: c, site: c.site, queue: c.queue}
}

// DType returns the element type, invalid for a Barrier.
func (c *Call) DType() DType {
	if c.Src.DType.Valid() {
		return c.Src.DType
	}
	return c.Dst.DType
}

// Bytes returns the bytes that this rank hands in, or receives where it hands in none.
func (c *Call) Bytes() int {
	if c.Src.Count > 0 {
		return c.Src.Bytes()
	}
	return c.Dst.Bytes()
}

// String describes the call without its place: "AllReduce sum float32[1024]".
func (c *Call) String() string {
	s := c.Fingerprint().String()
	switch {
	case c.Op == Custom && c.Func != nil:
		s += fmt.Sprintf(" by %q on %d-byte elements", c.Func.name, c.Func.size)
	case c.Kind.PointToPoint():
		s = fmt.Sprintf("%v %v[%d]", c.Kind, c.DType(), c.Dst.Count+c.Src.Count)
	}
	if c.Cause != "" {
		s += " for " + c.Cause
	}
	return s
}

// Site returns where the user made the call, as "train/main.go:31". It walks the
// stack, so it costs nothing until it is asked for.
func (c *Call) Site() string {
	if c.site != nil {
		return c.site.String()
	}
	var here site
	here.capture(2)
	return here.String()
}

// Attended reports whether the program stands still until the call has ended: it
// made the call to block, or waits for an asynchronous one at this moment.
func (c *Call) Attended() bool { return c.queue == nil || c.queue.waiters.Load() > 0 }

// check returns what is wrong with the call on rank of size, nil if nothing is.
func (c *Call) check(rank, size int) error {
	switch {
	case !c.Kind.Valid():
		return fmt.Errorf("invalid kind %d", c.Kind)
	case c.Kind == BarrierKind:
		return nil
	case (c.Kind.Rooted() || c.Kind.PointToPoint()) && (c.Root < 0 || c.Root >= size):
		return fmt.Errorf("rank %d is not in the communicator; give one of 0 to %d", c.Root, size-1)
	case c.Kind.PointToPoint() && c.Root == rank:
		return fmt.Errorf("rank %d is this rank itself; copy instead", c.Root)
	}
	dt := c.DType()
	if !dt.Valid() {
		return errors.New("neither dst nor src has an element type; make them with comm.Of")
	}
	if c.Kind.Reduces() {
		if c.Op == Custom {
			if c.Func == nil || c.Func.combine == nil {
				return errors.New("operation custom without a Func; make one with comm.NewFunc")
			}
		} else if err := c.Op.Accepts(dt); err != nil {
			return err
		}
	}
	if c.Dst.DType.Valid() && c.Src.DType.Valid() && c.Dst.DType != c.Src.DType {
		return fmt.Errorf("dst holds %v and src %v; cast one of them", c.Dst.DType, c.Src.DType)
	}
	if c.Dst.Count < 0 || c.Src.Count < 0 || c.Dst.Count > 0 && c.Dst.Ptr == nil || c.Src.Count > 0 && c.Src.Ptr == nil {
		return fmt.Errorf("dst has %d elements at %v and src %d at %v; give both memory", c.Dst.Count, c.Dst.Ptr, c.Src.Count, c.Src.Ptr)
	}
	if c.rows() {
		if err := c.checkRows(); err != nil {
			return err
		}
	}
	if c.Kind == AllReduceKind {
		if c.Dst.Count != c.Src.Count {
			return c.lengths(c.Src.Count, c.Src.Count)
		}
		if c.Dst.Ptr == c.Src.Ptr {
			return c.checkElems()
		}
	}
	if c.Dst.overlaps(c.Src) {
		return errors.New("dst and src overlap; give two separate buffers")
	}
	return c.checkCounts(rank, size)
}

// checkCounts checks the lengths of the buffers by the table above.
func (c *Call) checkCounts(rank, size int) error {
	d, s, root := c.Dst.Count, c.Src.Count, c.Root == rank
	switch c.Kind {
	case ReduceKind:
		if root && d != s {
			return c.lengths(s, s)
		}
	case AllGatherKind, SplitKind:
		if d != size*s {
			return c.lengths(size*s, s)
		}
	case GatherKind:
		if root && d != size*s {
			return c.lengths(size*s, s)
		}
	case ScatterKind:
		if root && s != size*d {
			return c.lengths(d, size*d)
		}
	case ReduceScatterKind:
		if s != size*d {
			return c.lengths(d, size*d)
		}
	case AllToAllKind:
		if d != s || s%size != 0 {
			return fmt.Errorf("len(dst) is %d and len(src) %d; both must be the same multiple of the %d ranks", d, s, size)
		}
	case AllGatherVKind:
		return c.vector("dst", c.DstCounts, size, d, rank, s)
	case ReduceScatterVKind:
		if err := c.vector("src", c.SrcCounts, size, s, rank, d); err != nil {
			return err
		}
	case GatherVKind:
		if root {
			return c.vector("dst", c.DstCounts, size, d, rank, s)
		}
	case ScatterVKind:
		if root {
			return c.vector("src", c.SrcCounts, size, s, rank, d)
		}
	case AllToAllVKind:
		if err := c.vector("dst", c.DstCounts, size, d, -1, 0); err != nil {
			return err
		}
		if err := c.vector("src", c.SrcCounts, size, s, -1, 0); err != nil {
			return err
		}
		if c.DstCounts[rank] != c.SrcCounts[rank] {
			return fmt.Errorf("this rank %d sends itself %d elements and expects %d; make dstCounts[%d] and srcCounts[%d] equal",
				rank, c.SrcCounts[rank], c.DstCounts[rank], rank, rank)
		}
	}
	return c.checkElems()
}

// checkElems checks that a Func's elements are whole in every rank's part.
func (c *Call) checkElems() error {
	if !c.Kind.Reduces() || c.Op != Custom {
		return nil
	}
	unit := c.DType().Size()
	whole := c.Dst.Bytes()%c.Func.size == 0 && c.Src.Bytes()%c.Func.size == 0
	for _, n := range c.SrcCounts {
		whole = whole && n*unit%c.Func.size == 0
	}
	if !whole {
		return fmt.Errorf("dst has %d bytes and src %d, not a whole number of the %d-byte elements of %q in each part", c.Dst.Bytes(), c.Src.Bytes(), c.Func.size, c.Func.name)
	}
	return nil
}

func (c *Call) lengths(dst, src int) error {
	return fmt.Errorf("len(dst) is %d and len(src) %d; they must be %d and %d", c.Dst.Count, c.Src.Count, dst, src)
}

// vector checks the counts of one buffer: one a rank, their sum its length,
// and the entry of rank (if not -1) the length own of the other buffer.
func (c *Call) vector(name string, counts []int, size, length, rank, own int) error {
	if len(counts) != size {
		return fmt.Errorf("%sCounts has %d entries; give one for each of the %d ranks", name, len(counts), size)
	}
	sum := 0
	for r, n := range counts {
		if n < 0 {
			return fmt.Errorf("%sCounts[%d] is %d; counts are not negative", name, r, n)
		}
		if sum += n; sum < 0 {
			return fmt.Errorf("%sCounts[%d] is %d; with those before it that is more than an int holds", name, r, n)
		}
	}
	if sum != length {
		return fmt.Errorf("%sCounts sum to %d and len(%s) is %d; they must be equal", name, sum, name, length)
	}
	if rank >= 0 && counts[rank] != own {
		return fmt.Errorf("%sCounts[%d] is %d and this rank's part has %d elements; they must be equal", name, rank, counts[rank], own)
	}
	return nil
}
