package fold

import "unsafe"

// prefixBlock is how many bytes of each source Prefixes takes at a time: they stay in a cache.
const prefixBlock = 8 << 10

// A Folder folds srcs into dsts, as Elements and Func do.
type Folder interface {
	Fold(dsts, srcs []unsafe.Pointer, n int)
}

// A Scan says which folds Prefixes computes.
type Scan struct {
	Unit   int  // bytes of an element
	Below  bool // dsts[k] is the fold of srcs[:k], else of srcs[:k+1]
	Custom bool // the operation is a user's: its result may not be its second source
	Anew   bool // each result is rounded once or divided at its end, so that none goes on from another
}

// Prefixes computes the folds of the first sources, for each number of them. The zero Prefixes is ready. It keeps its
// memory between calls, which must come one after another.
type Prefixes struct {
	Scan
	folder     Folder
	dsts, srcs []unsafe.Pointer // for the elements in progress
	n, bytes   int              // these elements
	room       [2][]uint64      // of that capacity each
	fold       [1]unsafe.Pointer
	two        [2]unsafe.Pointer
}

// Fold sets dsts[k] to a fold of n elements; if it has no sources, dsts[k] may be nil. dsts[k] may be srcs[k]. No other
// buffers may overlap.
func (p *Prefixes) Fold(f Folder, s Scan, dsts, srcs []unsafe.Pointer, n int) {
	step := max(1, prefixBlock/s.Unit)
	p.begin(f, s, step*s.Unit)
	defer p.end()
	for lo := 0; lo < n; lo += step {
		p.dsts, p.srcs = p.dsts[:0], p.srcs[:0]
		for k, src := range srcs {
			p.srcs = append(p.srcs, unsafe.Add(src, lo*s.Unit))
			if dst := dsts[k]; dst != nil {
				p.dsts = append(p.dsts, unsafe.Add(dst, lo*s.Unit))
			} else {
				p.dsts = append(p.dsts, nil)
			}
		}
		p.n = min(step, n-lo)
		p.bytes = p.n * s.Unit
		if s.Anew {
			p.each()
		} else {
			p.running()
		}
	}
}

// begin makes room for blocks of a number of bytes.
func (p *Prefixes) begin(f Folder, s Scan, bytes int) {
	p.folder, p.Scan = f, s
	if words := (bytes + 7) / 8; len(p.room[0]) < words {
		p.room = [2][]uint64{make([]uint64, words), make([]uint64, words)}
	}
}

// end forgets the buffers.
func (p *Prefixes) end() {
	clear(p.dsts)
	clear(p.srcs)
	p.folder, p.fold, p.two = nil, [1]unsafe.Pointer{}, [2]unsafe.Pointer{}
}

func (p *Prefixes) block(i int) unsafe.Pointer { return unsafe.Pointer(&p.room[i][0]) }

// each folds anew for each rank, as a result is rounded once or divided at its end. The last rank comes first, as
// its fold reads the srcs that may be the dsts of others.
func (p *Prefixes) each() {
	for k := len(p.dsts) - 1; k >= 0; k-- {
		ranks := k + 1
		if p.Below {
			ranks = k
		}
		if ranks > 0 {
			p.fold[0] = p.block(0)
			p.folder.Fold(p.fold[:], p.srcs[:ranks], p.n)
			p.copy(p.dsts[k], p.block(0))
		}
	}
}

// running goes on from the fold of the rank before.
func (p *Prefixes) running() {
	sum := p.srcs[0]
	for k, dst := range p.dsts {
		switch {
		case k == 0 && p.Below:
			continue
		case k == 0:
			p.copy(dst, sum)
		case p.Below:
			before := sum
			if k < len(p.dsts)-1 {
				sum = p.add(p.block(k&1), sum, p.srcs[k])
			}
			p.copy(dst, before)
		case p.Custom:
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
	p.folder.Fold(p.fold[:], p.two[:], p.n)
	return dst
}

func (p *Prefixes) copy(dst, src unsafe.Pointer) {
	if dst != src {
		copy(unsafe.Slice((*byte)(dst), p.bytes), unsafe.Slice((*byte)(src), p.bytes))
	}
}
