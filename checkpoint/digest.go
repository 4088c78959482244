package checkpoint

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// DigestRanges is into how many ranges of elements a Digest divides a tensor, at most.
const DigestRanges = 16

// A Digest is a fingerprint of a tensor that does not depend on how it is divided over
// ranks. Its elements, in row-major order, are divided into ranges of RangeElems(Shape)
// elements; each range has the sum, modulo 2^64, of a hash of each element's index and bits.
// The sum of hashes is AdHash of Bellare and Micciancio, "A New Paradigm for Collision-Free
// Hashing" (1997); the hash is the finalizer of SplitMix64. It finds errors, and is no
// protection against somebody who makes them on purpose.
type Digest struct {
	Name   string
	DType  tensor.DType
	Shape  []int
	Ranges []uint64
}

// RangeElems returns how many elements each range of a Digest has; the last one may have fewer.
func RangeElems(shape []int) int {
	return max(0, numel(shape)-1)/DigestRanges + 1
}

// digestRanges returns how many ranges a Digest of this shape has.
func digestRanges(shape []int) int {
	n := numel(shape)
	if n == 0 {
		return 0
	}
	return (n-1)/RangeElems(shape) + 1
}

func numel(shape []int) int { return box{size: shape}.numel() }

// equal reports whether d and e are of equal elements.
func (d *Digest) equal(e *Digest) bool {
	return d.DType == e.DType && slices.Equal(d.Shape, e.Shape) && slices.Equal(d.Ranges, e.Ranges)
}

// Digests returns a Digest of each tensor of state, in the order of their names, the same on
// every rank. It makes one reduction, of 16 numbers a tensor, and of 32 where several
// ranks hold the same elements: of these it checks that they are equal to the bit, and returns a
// *ReplicaError if they are not. Values are not in it. It is collective over world.
func Digests(ctx context.Context, world *comm.Comm, state *State) (_ []Digest, err error) {
	defer fault.Locate(&err)
	list, err := digests(ctx, world, state, 1)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: Digests: %w", err)
	}
	return list, nil
}

// CheckReplicas returns a *ReplicaError if ranks hold different elements of a tensor of state
// that is replicated over them, to the bit, the same on every rank. It costs a nanosecond or
// two for each such element, and one reduction of 32 numbers a tensor; nothing where no tensor is
// replicated. It is collective over world.
func CheckReplicas(ctx context.Context, world *comm.Comm, state *State) (err error) {
	defer fault.Locate(&err)
	if _, err := digests(ctx, world, state, 2); err != nil {
		return fmt.Errorf("checkpoint: CheckReplicas: %w", err)
	}
	return nil
}

// Replicated reports whether ranks hold copies of each other's elements of a tensor of s.
func (s *State) Replicated() bool {
	return slices.ContainsFunc(s.tensors, func(t namedTensor) bool { return t.copies() > 1 })
}

// digests returns the digests of the tensors of whose elements at least copies ranks hold each. With a *ReplicaError it returns
// those of the first copies.
func digests(ctx context.Context, world *comm.Comm, state *State, copies int) ([]Digest, error) {
	fewer := func(t namedTensor) bool { return t.copies() < copies }
	its := state.Clone()
	its.tensors = slices.DeleteFunc(its.tensors, fewer) // before copies with blocks of rows are made
	now, free := its.asSaved(ctx)
	defer free()
	if now.err != nil {
		return nil, now.err
	}
	sorted := now.sorted()
	sorted.tensors = slices.DeleteFunc(sorted.tensors, fewer)
	if len(sorted.tensors) == 0 {
		return nil, nil
	}
	var list []Digest
	var sums []uint64 // for each tensor its ranges, once for one copy and once for all copies
	for i := range sorted.tensors {
		t := &sorted.tensors[i]
		d := Digest{Name: t.name, DType: t.dtype(), Shape: t.shape()}
		n, each := numel(d.Shape), RangeElems(d.Shape)
		d.Ranges = make([]uint64, digestRanges(d.Shape))
		own, err := t.hash(window{0, n, each})
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.name, err)
		}
		if !t.first() {
			sums = append(sums, make([]uint64, len(own))...)
		} else {
			sums = append(sums, own...)
		}
		if t.copies() > 1 {
			sums = append(sums, own...)
		}
		list = append(list, d)
	}
	if err := comm.AllReduce(ctx, world, sums, comm.Sum); err != nil {
		return nil, err
	}
	if differs, where := takeSums(list, sorted.tensors, sums); differs != nil {
		return list, differs.locate(ctx, world, where)
	}
	return list, nil
}

// takeSums sets the ranges of the digests of tensors to the sums over all ranks. differs is the first tensor whose copies
// are not equal, nil if there is none, and where the first of its ranges that are not.
func takeSums(list []Digest, tensors []namedTensor, sums []uint64) (differs *namedTensor, where window) {
	at := 0
	for i := range list {
		t, d := &tensors[i], &list[i]
		at += copy(d.Ranges, sums[at:])
		if t.copies() == 1 {
			continue
		}
		all := sums[at : at+len(d.Ranges)]
		at += len(all)
		for r, sum := range d.Ranges {
			if all[r] != sum*uint64(t.copies()) && differs == nil {
				each := RangeElems(d.Shape)
				differs, where = t, window{r * each, min((r+1)*each, numel(d.Shape)), 0}
			}
		}
	}
	return differs, where
}

// A ReplicaError says that ranks hold different elements of a tensor that is replicated.
type ReplicaError struct {
	Name  string // of the tensor
	Index []int  // of the first element that differs
	Ranks []int  // world numbers of the ranks that hold it, the one with the first copy first
	Bits  []uint64
	DType tensor.DType
}

// common returns the bits that the most ranks hold, and how many do.
func (e *ReplicaError) common() (common uint64, most int) {
	count := map[uint64]int{}
	for _, b := range e.Bits {
		count[b]++
	}
	common, most = e.Bits[0], count[e.Bits[0]]
	for _, b := range e.Bits { // in the same order on every rank
		if count[b] > most {
			common, most = b, count[b]
		}
	}
	return common, most
}

// Error names the ranks that differ from most of the others, or all if none do.
func (e *ReplicaError) Error() string {
	common, most := e.common()
	var differ []string
	for i, r := range e.Ranks {
		if e.Bits[i] != common {
			differ = append(differ, fmt.Sprintf("%s on rank %d", showBits(e.DType, e.Bits[i]), r))
		}
	}
	where := ""
	if i := slices.Index(e.Bits, common); i >= 0 {
		where = fmt.Sprintf("%s on rank %d", showBits(e.DType, common), e.Ranks[i])
		if most > 1 {
			where += fmt.Sprintf(" and %d more", most-1)
		}
	}
	return fmt.Sprintf("replicas of tensor %q differ: element %v is %s, but %s; each rank must make the same update of it: look for "+
		"data, random numbers or a rate that differ between ranks (GORUN_CHECK=1 finds the step), and for faulty memory", e.Name, e.Index, where,
		strings.Join(differ, ", "))
}

// showBits writes an element as a number, and its bits.
func showBits(dt tensor.DType, bits uint64) string {
	return fmt.Sprintf("%v (%#0*x)", number(dt, bits), 2*dt.Size(), bits)
}

// copies returns how many ranks hold each element of t.
func (t *namedTensor) copies() int {
	if t.shards != nil {
		return 1
	}
	n := 1
	for axis, p := range t.tensor.Placements() {
		if p.IsReplicate() {
			n *= t.tensor.Mesh().Axes()[axis].Size
		}
	}
	return n
}

// first reports whether this rank's copy of its elements of t is the first one.
func (t *namedTensor) first() bool {
	if t.shards != nil {
		return true
	}
	coord := t.tensor.Mesh().Coord()
	for axis, p := range t.tensor.Placements() {
		if coord != nil && p.IsReplicate() && coord[axis] > 0 {
			return false
		}
	}
	return true
}

// A window is the elements lo to hi of a tensor in row-major order, in ranges of each.
type window struct{ lo, hi, each int }

// ranges returns how many ranges w has.
func (w window) ranges() int { return ints.DivUp(w.hi-w.lo, w.each) }

// hash returns for each range of w the sum of the hashes of its elements that this rank holds.
func (t *namedTensor) hash(w window) (sums []uint64, err error) {
	defer fault.Catch(&err)
	sums = make([]uint64, w.ranges())
	for _, p := range t.parts() {
		if p.rows == nil {
			hashBox(sums, w, onHost(p.data), p.data.DType().Size(), p.box, t.shape())
		} else if err := t.hashStored(sums, w, p); err != nil {
			return nil, err
		}
	}
	return sums, nil
}

// hashStored is hashBox of a part whose rows lie on a disk, some of them at a time.
func (t *namedTensor) hashStored(sums []uint64, w window, p localPart) error {
	return eachRows(p.rows, p.box.size[0], t.rowBytes(), storedBytes, func(first int, b []byte) error {
		in := box{slices.Clone(p.box.offset), slices.Clone(p.box.size)}
		in.offset[0], in.size[0] = in.offset[0]+first, len(b)/t.rowBytes()
		hashBox(sums, w, b, t.dtype().Size(), in, t.shape())
		return nil
	})
}

// hashBox adds the hashes of the elements of w that are in b, a box of a tensor of this shape.
func hashBox(sums []uint64, w window, b []byte, elem int, in box, shape []int) {
	whole := box{make([]int, len(shape)), shape}
	for u := range runs(in, whole) {
		lo, hi := max(u.y, w.lo), min(u.y+u.n, w.hi)
		for lo < hi {
			r := (lo - w.lo) / w.each
			end := min(hi, w.lo+(r+1)*w.each)
			at := (u.x + lo - u.y) * elem
			sums[r] += hashRun(b[at:at+(end-lo)*elem], elem, uint64(lo))
			lo = end
		}
	}
}

// hashRun returns the sum of the hashes of elements of elem bytes, of which the first has
// this index.
func hashRun(b []byte, elem int, index uint64) uint64 {
	p, n := unsafe.Pointer(unsafe.SliceData(b)), len(b)/elem
	switch elem {
	case 1:
		return hashElems(unsafe.Slice((*uint8)(p), n), index)
	case 2:
		return hashElems(unsafe.Slice((*uint16)(p), n), index)
	case 4:
		return hashElems(unsafe.Slice((*uint32)(p), n), index)
	case 8:
		return hashElems(unsafe.Slice((*uint64)(p), n), index)
	}
	panic(fmt.Sprintf("checkpoint: no digest of elements of %d bytes", elem))
}

func hashElems[T uint8 | uint16 | uint32 | uint64](elems []T, index uint64) (sum uint64) {
	const golden = 0x9e3779b97f4a7c15
	seed := (index + 1) * golden
	for _, e := range elems {
		sum += ints.Mix(seed ^ ints.Mix(uint64(e)+golden))
		seed += golden
	}
	return sum
}

// locate returns the error about the first element of w of which copies differ.
func (t *namedTensor) locate(ctx context.Context, world *comm.Comm, w window) error {
	for w.hi-w.lo > 1 {
		w.each = ints.DivUp(w.hi-w.lo, DigestRanges)
		own, err := t.hash(w)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", t.name, err)
		}
		sums := slices.Concat(make([]uint64, len(own)), own)
		if t.first() {
			copy(sums, own)
		}
		if err := comm.AllReduce(ctx, world, sums, comm.Sum); err != nil {
			return err
		}
		once, all := sums[:len(own)], sums[len(own):]
		r := 0
		for r < len(own)-1 && all[r] == once[r]*uint64(t.copies()) {
			r++
		}
		w.lo, w.hi = w.lo+r*w.each, min(w.hi, w.lo+(r+1)*w.each)
	}
	return t.replicas(ctx, world, w.lo)
}

// replicas returns a *ReplicaError with what each rank holds of element at.
func (t *namedTensor) replicas(ctx context.Context, world *comm.Comm, at int) error {
	mine := []uint64{0, 0} // whether this rank has it, its bits
	index := tensor.UnravelIndex(at, t.shape())
	one := box{index, slices.Repeat([]int{1}, len(index))}
	for _, p := range t.parts() {
		for u := range runs(p.box, one) {
			var bits [8]byte
			elem := p.data.DType().Size()
			p.data.Device().ToHost(unsafe.Pointer(&bits[0]), unsafe.Add(p.data.Ptr(), u.x*elem), elem)
			mine = []uint64{1, *(*uint64)(unsafe.Pointer(&bits[0]))}
		}
	}
	all := make([]uint64, 2*world.Size())
	if err := comm.AllGather(ctx, world, all, mine); err != nil {
		return err
	}
	e := &ReplicaError{Name: t.name, Index: index, DType: t.dtype()}
	for r := range world.Size() {
		if all[2*r] != 0 {
			e.Ranks, e.Bits = append(e.Ranks, world.WorldRank(r)), append(e.Bits, all[2*r+1])
		}
	}
	return e
}
