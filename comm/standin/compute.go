package standin

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/fold"
)

// patterns are the patterns that Do carries out.
const patterns = 1<<backend.PatternBarrier | 1<<backend.PatternMessage | 1<<backend.PatternMove |
	1<<backend.PatternReduce | 1<<backend.PatternReduceScatter | 1<<backend.PatternScan

// agree checks that each rank that runs expects as many elements as another that runs sends.
func (r *Rank) agree(posts []post) error {
	g, size := r.g, len(r.g.world)
	for i, p := range posts {
		for k, q := range posts {
			from, to := g.here[i], g.here[k]
			sent, _ := p.call.Lengths(from, to, size)
			if _, expected := q.call.Lengths(to, from, size); sent != expected {
				return p.call.Uneven(g.world[from], sent, g.world[to], expected)
			}
		}
	}
	return nil
}

// compute gives this rank its result. What belongs where others read comes when done is called,
// after all have read; nil: nothing does.
func (r *Rank) compute(posts []post) (done func(), err error) {
	call := posts[r.me].call
	switch s := call.Kind.Shape(); s.Pattern {
	case backend.PatternMove:
		if root, ok := r.root(call); !ok && call.Fills(r.rank, r.Size()) && call.Dst.Count > 0 {
			return nil, fmt.Errorf("%v needs elements that rank %d alone has, which does not run; have it run: gorun plan --ranks %d", call.Kind,
				root, root)
		}
		r.move(posts)
		if call.Kind == backend.SplitKind {
			return nil, r.place(posts)
		}
	case backend.PatternReduce, backend.PatternReduceScatter, backend.PatternScan:
		return r.fold(posts), nil
	}
	return nil, nil
}

// root returns the world number of the root whose elements the others get; ok is false if there is
// one and it does not run.
func (r *Rank) root(call *backend.Call) (world int, ok bool) {
	switch call.Kind.Shape().Root {
	case backend.RootSends, backend.RootShares:
		_, ok = r.g.runs(call.Root)
		return r.g.world[call.Root], ok
	}
	return 0, true
}

// move copies to this rank's Dst what the others send it. A rank that does not run sends what the
// one sends that stands in for it, as far as that is as long, and zeros then.
func (r *Rank) move(posts []post) {
	call, me, size := posts[r.me].call, r.rank, r.Size()
	first, sent := make([]int, len(posts)), make([]int, len(posts))
	for i, p := range posts {
		if p.real {
			first[i], sent[i] = p.call.Outgoing(r.g.here[i], me, size)
		}
	}
	unit := call.DType().Size()
	shape := call.Kind.Shape()
	each := call.Dst.Count
	if shape.Dst == backend.Parts {
		each /= size
	}
	at := 0
	for q, i := range r.standIns() {
		n := 0
		switch {
		case !call.Sends(q, me):
		case shape.Dst == backend.Counted:
			n = call.DstCounts[q]
		default:
			n = each
		}
		moved, dst := min(n, sent[i]), call.Dst.Part(call.DstRows, at, n)
		if moved > 0 {
			c := posts[i].call
			src := c.Source(r.g.here[i]).Part(c.SrcRows, first[i], sent[i])
			if dst != src { // a call in place
				posts[i].own.copy(dst, src, moved*unit)
			}
		}
		if posts[i].real {
			r.own.clear(dst.From(moved*unit), (n-moved)*unit)
		}
		if shape.Dst != backend.Whole {
			at += n
		}
	}
}

// copy copies the first n bytes of a part of this rank's, except for those that are not there.
func (o *own) copy(dst, src backend.Part, n int) {
	for i := 0; i < n; {
		from, run := src.Run(i, n-i)
		run, none := o.without(from, run)
		if !none {
			backend.CopyParts(dst.From(i), src.From(i), run, n)
		}
		i += run
	}
}

// clear zeroes the first n bytes of a part of this rank's, except for those that are not there.
func (o *own) clear(dst backend.Part, n int) {
	for i := 0; i < n; {
		at, run := dst.Run(i, n-i)
		run, none := o.without(at, run)
		if !none {
			clear(unsafe.Slice((*byte)(at), run))
		}
		i += run
	}
}

// errPlaces is the error of a Split in which a rank that does not run may be in any group: it alone knows its colour.
var errPlaces = errors.New("Split: the ranks that do not run may be in any group; divide the ranks by a dtensor.Mesh, or have all run: " +
	"gorun plan --ranks all")

// place puts into the result of a Split's exchange what the ranks that do not run give.
func (r *Rank) place(posts []post) error {
	call := posts[r.me].call
	if len(r.g.here) == r.Size() {
		return nil
	}
	all := unsafe.Slice((*int64)(call.Dst.Ptr), call.Dst.Count)
	if f := call.Places(); f != nil {
		for q := range r.Size() {
			color, key := f(q)
			all[2*q], all[2*q+1] = int64(color), int64(key)
		}
		return nil
	}
	first := r.g.here[0]
	ranks, equal := true, true // whether the keys are the ranks, or all the same
	for _, q := range r.g.here {
		if all[2*q] != all[2*first] {
			return errPlaces
		}
		ranks, equal = ranks && all[2*q+1] == int64(q), equal && all[2*q+1] == all[2*first+1]
	}
	if !ranks && !equal {
		return errPlaces
	}
	for q := range r.Size() {
		if ranks {
			all[2*q+1] = int64(q)
		}
	}
	return nil
}

// fold folds the elements of all ranks. An operation that does not mind how often it meets an
// element gets those of each rank that runs once.
func (r *Rank) fold(posts []post) (done func()) {
	call, size := posts[r.me].call, r.Size()
	n := call.Folds(r.rank, size)
	bytes := call.Dst.Bytes()
	if n == 0 || bytes == 0 || slices.ContainsFunc(posts, func(p post) bool { return !p.real }) {
		return nil
	}
	ranks := r.standIns()[:n]
	if op := call.Op; op == fold.Max || op == fold.Min || op == fold.And || op == fold.Or {
		ranks = slices.Compact(slices.Sorted(slices.Values(ranks)))
	}
	dst := call.Dst.Ptr
	if call.Kind.Shape().InPlace && dst == call.Src.Ptr { // the others read it
		result := make([]uint64, (bytes+7)/8)
		dst = unsafe.Pointer(unsafe.SliceData(result))
		done = func() { copy(call.Dst.Data(), unsafe.Slice((*byte)(dst), bytes)) }
	}
	first := make([]int, len(posts))
	for i, p := range posts {
		first[i], _ = p.call.Outgoing(r.g.here[i], r.rank, size)
	}
	srcs := make([]unsafe.Pointer, len(ranks))
	for i := 0; i < bytes; {
		run := bytes - i
		for k, place := range ranks {
			c := posts[place].call
			srcs[k], run = c.Src.Part(c.SrcRows, first[place], call.Dst.Count).Run(i, run)
		}
		call.Fold([]unsafe.Pointer{unsafe.Add(dst, i)}, srcs, run/call.Unit())
		i += run
	}
	return done
}
