package comm

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/fold"
)

// Fold computes c's reduction, for backends. For each of n elements
//
//	x := srcs[0][i] op srcs[1][i] op …   from left to right
//	every dsts[k][i] = x                 divided by len(srcs) for Avg
//
// With a Func, n counts elements of the Func's type. dsts[0] may be srcs[0]; if there are two
// srcs and no Func it may be srcs[1] too. Each other dst may be any src. No other buffers may
// overlap.
func (c *Call) Fold(dsts, srcs []unsafe.Pointer, n int) {
	if c.Op == Custom {
		fold.Func(c.Func.combine, c.Func.size, dsts, srcs, n)
		return
	}
	fold.Elements(c.Op, c.DType(), dsts, srcs, n)
}

// prefixBlock is how many bytes of each source Prefixes takes at a time: they stay in a cache.
const prefixBlock = 8 << 10

// Prefixes computes the results of all ranks of a Scan or an Exscan, for backends. The zero Prefixes is ready. It keeps its
// memory between calls, which must come one after another.
type Prefixes struct {
	call       *Call
	dsts, srcs []unsafe.Pointer // for the elements in progress
	n, bytes   int              // these elements
	room       [2][]uint64      // for so many each
	fold       [1]unsafe.Pointer
	two        [2]unsafe.Pointer
}

// Fold sets dsts[k], for each of n elements, to the Fold of the first c.Folds(k, len(srcs)) srcs; if these are none, it may
// be nil. dsts[k] may be srcs[k]. No other buffers may overlap.
func (p *Prefixes) Fold(c *Call, dsts, srcs []unsafe.Pointer, n int) {
	unit := c.Unit()
	step := max(1, prefixBlock/unit)
	p.begin(c, step*unit)
	defer p.end()
	for lo := 0; lo < n; lo += step {
		p.dsts, p.srcs = p.dsts[:0], p.srcs[:0]
		for k, src := range srcs {
			p.srcs = append(p.srcs, unsafe.Add(src, lo*unit))
			if dst := dsts[k]; dst != nil {
				p.dsts = append(p.dsts, unsafe.Add(dst, lo*unit))
			} else {
				p.dsts = append(p.dsts, nil)
			}
		}
		p.n = min(step, n-lo)
		p.bytes = p.n * unit
		if c.Op != Custom && (c.Op == Avg || c.DType().Narrow()) {
			p.each()
		} else {
			p.running()
		}
	}
}

// begin makes room for blocks of so many bytes.
func (p *Prefixes) begin(c *Call, bytes int) {
	p.call = c
	if words := (bytes + 7) / 8; len(p.room[0]) < words {
		p.room = [2][]uint64{make([]uint64, words), make([]uint64, words)}
	}
}

// end forgets the buffers.
func (p *Prefixes) end() {
	clear(p.dsts)
	clear(p.srcs)
	p.call, p.fold, p.two = nil, [1]unsafe.Pointer{}, [2]unsafe.Pointer{}
}

func (p *Prefixes) block(i int) unsafe.Pointer { return unsafe.Pointer(&p.room[i][0]) }

// each folds anew for each rank, as a result is rounded once or divided at its end. The last rank comes first, as
// its fold reads the srcs that may be the dsts of others.
func (p *Prefixes) each() {
	for k := len(p.dsts) - 1; k >= 0; k-- {
		if ranks := p.call.Folds(k, len(p.srcs)); ranks > 0 {
			p.fold[0] = p.block(0)
			p.call.Fold(p.fold[:], p.srcs[:ranks], p.n)
			p.copy(p.dsts[k], p.block(0))
		}
	}
}

// running goes on from the fold of the rank before.
func (p *Prefixes) running() {
	sum, below := p.srcs[0], p.call.Kind.Shape().Below
	for k, dst := range p.dsts {
		switch {
		case k == 0 && below:
			continue
		case k == 0:
			p.copy(dst, sum)
		case below:
			before := sum
			if k < len(p.dsts)-1 {
				sum = p.add(p.block(k&1), sum, p.srcs[k])
			}
			p.copy(dst, before)
		case p.call.Op == Custom: // its result may not be its second source
			sum = p.add(p.block(k&1), sum, p.srcs[k])
			p.copy(dst, sum)
		default:
			sum = p.add(dst, sum, p.srcs[k])
		}
	}
}

// add folds a and b into dst, and returns dst.
func (p *Prefixes) add(dst, a, b unsafe.Pointer) unsafe.Pointer {
	p.fold[0], p.two = dst, [2]unsafe.Pointer{a, b}
	p.call.Fold(p.fold[:], p.two[:], p.n)
	return dst
}

func (p *Prefixes) copy(dst, src unsafe.Pointer) {
	if dst != src {
		copy(unsafe.Slice((*byte)(dst), p.bytes), unsafe.Slice((*byte)(src), p.bytes))
	}
}

// Unit returns the size in bytes of the elements that Fold counts.
func (c *Call) Unit() int {
	if c.Op == Custom && c.Func != nil {
		return c.Func.size
	}
	return c.DType().Size()
}
