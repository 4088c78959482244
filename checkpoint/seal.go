package checkpoint

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// A Seal finds which of the elements that this rank holds of some tensors have changed since it was made, also of those that
// no other rank holds. Of the bits e of the n elements of a part it keeps two sums, Σ e[i] and Σ (n-i)·e[i], modulo the prime
// 2^61-1. If one element changes by d, the sums change by d and by (n-i)·d; their quotient gives i.
type Seal struct {
	tensors []namedTensor // in the order of their names
	parts   []sealedPart
	lifted  finding // of the first changed element that Lift has found
	err     error   // of Lift
}

// A finding is, of a tensor of which this rank's elements have changed, its number, from 1 on; that of the element, from 1 on, or 0
// if there are several; and its bits, now and before. The first number is 0 if nothing has changed.
type finding [4]uint64

// A sealedPart is a part of tensor number t.
type sealedPart struct {
	t int
	localPart
	sums [2]uint64
}

// NewSeal seals what this rank holds in memory of the tensors of state. It makes no call, and costs some nanoseconds an element.
func NewSeal(state *State) (s *Seal, err error) {
	defer fault.Locate(&err)
	sorted := state.sorted()
	s = &Seal{tensors: sorted.tensors}
	if sorted.err != nil {
		return nil, fmt.Errorf("checkpoint: NewSeal: %w", sorted.err)
	}
	defer fault.Catch(&err)
	for i := range s.tensors {
		for _, p := range s.tensors[i].parts() {
			if p.rows == nil {
				s.parts = append(s.parts, sealedPart{i, p, sealSums(p.data)})
			}
		}
	}
	return s, nil
}

// Lift looks whether what is sealed of tensors has changed, and seals it no more: they are about to be updated. Check returns what it
// has found. It makes no call and costs as much as NewSeal did for these tensors. Of a nil Seal it does nothing.
func (s *Seal) Lift(tensors ...*dtensor.Tensor) {
	if s == nil {
		return
	}
	s.parts = slices.DeleteFunc(s.parts, func(p sealedPart) bool {
		t := s.tensors[p.t].tensor
		if t == nil || !slices.Contains(tensors, t) {
			return false
		}
		s.look(&p)
		return true
	})
}

// Check returns a *ChangedError, the same on every rank, if an element has changed on any: of the first such rank the first that Lift
// has found, or else Check. It costs as much as NewSeal, and one gather of 4 numbers a rank. It is collective over world.
func (s *Seal) Check(ctx context.Context, world *comm.Comm) error {
	mine, err := s.changed()
	if err := agree(ctx, world, err); err != nil {
		return fmt.Errorf("checkpoint: Seal.Check: %w", err)
	}
	all := make([]uint64, len(mine)*world.Size())
	if err := comm.AllGather(ctx, world, all, mine[:]); err != nil {
		return fmt.Errorf("checkpoint: Seal.Check: %w", err)
	}
	for r := range world.Size() {
		word := all[r*len(mine):][:len(mine)]
		if word[0] == 0 {
			continue
		}
		t := &s.tensors[word[0]-1]
		e := &ChangedError{Name: t.name, Rank: world.WorldRank(r), DType: t.dtype()}
		if word[1] > 0 {
			e.Index, e.Bits, e.Was = tensor.UnravelIndex(int(word[1]-1), t.shape()), word[2], word[3]
		}
		return fmt.Errorf("checkpoint: Seal.Check: %w", e)
	}
	return nil
}

// changed returns what Lift has found, or else the first change of what is sealed still.
func (s *Seal) changed() (found finding, err error) {
	found, err = s.lifted, s.err
	defer fault.Catch(&err)
	for i := 0; i < len(s.parts) && found[0] == 0 && err == nil; i++ {
		found = s.change(&s.parts[i])
	}
	return found, err
}

// look keeps the change of a part, unless there was one before.
func (s *Seal) look(p *sealedPart) {
	defer fault.Catch(&s.err)
	if s.lifted[0] == 0 && s.err == nil {
		s.lifted = s.change(p)
	}
}

// change returns how a part has changed.
func (s *Seal) change(p *sealedPart) (found finding) {
	now := sealSums(p.data)
	if now == p.sums {
		return found
	}
	found[0] = uint64(p.t + 1)
	d := less(now[0], p.sums[0])
	back := times61(less(now[1], p.sums[1]), inverse(d)) // n-i, if one element has changed
	n := p.box.numel()
	t := &s.tensors[p.t]
	if d == 0 || back < 1 || back > uint64(n) {
		return found
	}
	i := n - int(back)
	shape, at := t.shape(), 0
	for axis, k := range tensor.UnravelIndex(i, p.box.size) {
		if axis == 0 && t.tensor != nil {
			k = t.tensor.Layout().Held(t.mesh().Coord()).Row(k) // in a block, or dealt out in turn
		} else {
			k += p.box.offset[axis]
		}
		at = at*shape[axis] + k
	}
	found[1], found[2] = uint64(at+1), element(onHost(p.data)[i*p.data.DType().Size():], p.data.DType())
	if p.data.DType().Size() < 8 { // of larger ones the bits before are known modulo the prime alone
		found[3] = less(found[2], d)
	}
	return found
}

// A ChangedError says that elements of a tensor have changed on a rank since a Seal was made.
type ChangedError struct {
	Name      string // of the tensor
	Index     []int  // of the element; nil if several have changed
	Rank      int    // the world's number of the rank
	Bits, Was uint64 // of the element, now and, if it has less than 8 bytes, before
	DType     tensor.DType
}

// Error names the element and the rank.
func (e *ChangedError) Error() string {
	what := "elements"
	if e.Index != nil {
		what = fmt.Sprintf("element %v, which is %s", e.Index, showBits(e.DType, e.Bits))
		if e.DType.Size() < 8 {
			what += " and was " + showBits(e.DType, e.Was)
		}
		what += ","
	}
	return fmt.Sprintf("tensor %q: %s changed on rank %d, where nothing should have written; look for code that writes beyond what is its "+
		"own, and for faulty memory", e.Name, what, e.Rank)
}

// onHost returns the bytes of x in this process's memory.
func onHost(x *tensor.Tensor) []byte {
	b, ok := hostBytes(x)
	if !ok {
		b = make([]byte, x.Bytes())
		x.Device().ToHost(unsafe.Pointer(&b[0]), x.Ptr(), len(b))
	}
	return b
}

// sealSums returns the sums of a part, whose elements follow each other.
func sealSums(x *tensor.Tensor) [2]uint64 {
	b := onHost(x)
	p, n := unsafe.Pointer(unsafe.SliceData(b)), x.Numel()
	switch size := x.DType().Size(); size {
	case 1:
		return sealElems(unsafe.Slice((*uint8)(p), n))
	case 2:
		return sealElems(unsafe.Slice((*uint16)(p), n))
	case 4:
		return sealElems(unsafe.Slice((*uint32)(p), n))
	case 8:
		return sealElems(unsafe.Slice((*uint64)(p), n))
	default:
		panic(fmt.Sprintf("checkpoint: no seal of elements of %d bytes", size))
	}
}

func sealElems[T uint8 | uint16 | uint32 | uint64](elems []T) [2]uint64 {
	var sum, sums uint64
	for _, e := range elems {
		sum = mod61(sum + mod61(uint64(e)))
		sums = mod61(sums + sum)
	}
	return [2]uint64{sum, sums}
}

// Arithmetic modulo the prime 2^61-1.
const prime61 = 1<<61 - 1

// mod61 is x modulo the prime.
func mod61(x uint64) uint64 {
	if x = x&prime61 + x>>61; x >= prime61 {
		x -= prime61
	}
	return x
}

func less(a, b uint64) uint64 { return mod61(a + prime61 - b) }

func times61(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return mod61(lo&prime61 + (hi<<3 | lo>>61))
}

// inverse returns the number b with a·b = 1 modulo prime61, by Fermat's theorem; 0 for 0.
func inverse(a uint64) uint64 {
	power := uint64(1)
	for e := uint64(prime61 - 2); e > 0; e >>= 1 {
		if e&1 == 1 {
			power = times61(power, a)
		}
		a = times61(a, a)
	}
	return power
}
