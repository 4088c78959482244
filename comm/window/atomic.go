package window

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/fold"
)

// Accumulate folds each element of src into rank's memory: element x at at+i becomes x op src[i].
// op is Sum, Prod, Min, Max, And, Or or Xor, as far as T has it.
func (w *Window[T]) Accumulate(rank, at int, src []T, op comm.Op) error {
	return w.do(comm.AccumulateKind, op, rank, at, len(src), comm.Of(src), func(at int) error {
		if err := w.folds(op); err != nil {
			return err
		}
		if w.remote != nil {
			if ok, err := w.remote.Accumulate(rank, at, op, comm.Of(src)); ok || err != nil {
				return err
			}
		}
		for i, v := range src {
			if _, err := w.fetch(rank, at+i*w.size, op, bits(v)); err != nil {
				return err
			}
		}
		return nil
	})
}

// FetchAndOp makes element x at at of rank's memory x op value, and returns the old x. op is as
// for Accumulate.
func (w *Window[T]) FetchAndOp(rank, at int, value T, op comm.Op) (was T, err error) {
	err = w.do(comm.FetchAndOpKind, op, rank, at, 1, w.one, func(at int) error {
		if err := w.folds(op); err != nil {
			return err
		}
		if w.remote != nil {
			old := make([]T, 1)
			if ok, err := w.remote.FetchAndOp(rank, at, op, comm.Of([]T{value}), comm.Of(old)); ok || err != nil {
				was = old[0]
				return err
			}
		}
		b, err := w.fetch(rank, at, op, bits(value))
		was = of[T](b)
		return err
	})
	return was, err
}

// FetchAndAdd adds delta to element at of rank's memory, and returns its old value.
func (w *Window[T]) FetchAndAdd(rank, at int, delta T) (was T, err error) {
	return w.FetchAndOp(rank, at, delta, comm.Sum)
}

// Swap sets element at of rank's memory to value, and returns its old value.
func (w *Window[T]) Swap(rank, at int, value T) (was T, err error) {
	return w.exchange(rank, at, func(at int) (uint64, error) {
		for {
			old, err := w.load(rank, at, w.size)
			if err != nil {
				return 0, err
			}
			if b, err := w.cas(rank, at, w.size, old, bits(value)); err != nil || b == old {
				return b, err
			}
		}
	})
}

// CompareAndSwap sets element at of rank's memory to value if it equals old, bit for bit. It
// returns the value that it found.
func (w *Window[T]) CompareAndSwap(rank, at int, old, value T) (was T, err error) {
	return w.exchange(rank, at, func(at int) (uint64, error) { return w.cas(rank, at, w.size, bits(old), bits(value)) })
}

// Load returns element at of rank's memory.
func (w *Window[T]) Load(rank, at int) (value T, err error) {
	return w.exchange(rank, at, func(at int) (uint64, error) { return w.load(rank, at, w.size) })
}

// exchange makes a call that returns one element. f does the work.
func (w *Window[T]) exchange(rank, at int, f func(at int) (uint64, error)) (was T, err error) {
	err = w.do(comm.FetchAndOpKind, comm.NoOp, rank, at, 1, w.one, func(at int) error {
		if err := w.atomics(); err != nil {
			return err
		}
		b, err := f(at)
		was = of[T](b)
		return err
	})
	return was, err
}

// atomics returns an error if the elements have no atomic operations.
func (w *Window[T]) atomics() error {
	if w.dtype.Size() == 0 || w.size > 8 {
		return fmt.Errorf("%T of %d bytes has no atomic operations; use numbers of up to 8 bytes, or Put and Get under a Lock", *new(T), w.size)
	}
	return nil
}

// folds returns an error if op cannot be applied to an element.
func (w *Window[T]) folds(op comm.Op) error {
	if err := w.atomics(); err != nil {
		return err
	}
	switch op {
	case comm.Sum, comm.Prod, comm.Min, comm.Max, comm.And, comm.Or, comm.Xor:
		return op.Accepts(w.dtype)
	}
	return fmt.Errorf("%v is no operation on one element; use Sum, Prod, Min, Max, And, Or or Xor", op)
}

// fetch folds value into the element at byte at, and returns its old value.
func (w *base) fetch(rank, at int, op comm.Op, value uint64) (was uint64, err error) {
	size := w.dtype.Size()
	if w.remote == nil && op == comm.Sum {
		p := unsafe.Add(w.addrs[rank], at)
		switch w.dtype {
		case comm.Int64, comm.Uint64:
			return atomic.AddUint64((*uint64)(p), value) - value, nil
		case comm.Int32, comm.Uint32:
			return uint64(atomic.AddUint32((*uint32)(p), uint32(value)) - uint32(value)), nil
		}
	}
	for {
		old, err := w.load(rank, at, size)
		if err != nil {
			return 0, err
		}
		if was, err := w.cas(rank, at, size, old, w.fold(op, old, value)); err != nil || was == old {
			return was, err
		}
	}
}

// fold returns a op b. All three are the bits of elements.
func (w *base) fold(op comm.Op, a, b uint64) uint64 {
	if op == comm.Sum {
		switch w.dtype {
		case comm.Float64:
			return math.Float64bits(math.Float64frombits(a) + math.Float64frombits(b))
		case comm.Float32:
			return uint64(math.Float32bits(math.Float32frombits(uint32(a)) + math.Float32frombits(uint32(b))))
		}
	}
	x := [2]uint64{a, b}
	fold.Elements(op, w.dtype, []unsafe.Pointer{unsafe.Pointer(&x[0])}, []unsafe.Pointer{unsafe.Pointer(&x[0]), unsafe.Pointer(&x[1])}, 1)
	return x[0]
}

// load reads size bytes at byte at; size is 1, 2, 4 or 8.
func (w *base) load(rank, at, size int) (uint64, error) {
	if size < 4 {
		word, shift, mask := wordOf(at, size)
		all, err := w.load(rank, word, 4)
		return all >> shift & mask, err
	}
	if w.remote != nil {
		return w.remote.Load(rank, at, size)
	}
	p := unsafe.Add(w.addrs[rank], at)
	if size == 4 {
		return uint64(atomic.LoadUint32((*uint32)(p))), nil
	}
	return atomic.LoadUint64((*uint64)(p)), nil
}

// cas replaces size bytes at byte at by value if they equal old, and returns the bytes that it
// found.
func (w *base) cas(rank, at, size int, old, value uint64) (was uint64, err error) {
	if size < 4 { // swap the whole word around them: Open MPI 4.1.4 crashes on fewer bytes
		word, shift, mask := wordOf(at, size)
		for {
			all, err := w.load(rank, word, 4)
			if was := all >> shift & mask; err != nil || was != old {
				return was, err
			}
			if seen, err := w.cas(rank, word, 4, all, all&^(mask<<shift)|value<<shift); err != nil || seen == all {
				return old, err
			}
		}
	}
	if w.remote != nil {
		return w.remote.CompareAndSwap(rank, at, size, old, value)
	}
	for p := unsafe.Add(w.addrs[rank], at); ; {
		if size == 4 && atomic.CompareAndSwapUint32((*uint32)(p), uint32(old), uint32(value)) ||
			size == 8 && atomic.CompareAndSwapUint64((*uint64)(p), old, value) {
			return old, nil
		}
		if was, _ := w.load(rank, at, size); was != old {
			return was, nil
		}
	}
}

// wordOf returns the place of the aligned word of 4 bytes that holds the size bytes at byte at.
// size is 1 or 2; shift and mask select the bytes in the word. The machine is little-endian, as
// all that gorun supports are.
func wordOf(at, size int) (word, shift int, mask uint64) {
	return at &^ 3, at & 3 * 8, 1<<(8*size) - 1
}

// bits returns the bytes of v as a number.
func bits[T any](v T) uint64 {
	p := unsafe.Pointer(&v)
	switch unsafe.Sizeof(v) {
	case 1:
		return uint64(*(*uint8)(p))
	case 2:
		return uint64(*(*uint16)(p))
	case 4:
		return uint64(*(*uint32)(p))
	case 8:
		return *(*uint64)(p)
	}
	panic(errors.New("window: bits of an element of another size"))
}

// of returns the element whose bytes are b.
func of[T any](b uint64) T {
	return *(*T)(unsafe.Pointer(&b)) // the machine is little-endian
}
