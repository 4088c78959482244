package comm

import (
	"context"
	"fmt"
	"reflect"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/dtype"
)

// NewFunc returns the reduction that folds values a of lower ranks with the
// value b of the next by combine(a, b). combine must be associative; it need
// not be commutative; it must make no calls on a communicator. Ranks compare
// Funcs by name and element size. NewFunc returns an error if T is empty or
// holds a pointer, which means nothing on another rank.
func NewFunc[T any](name string, combine func(a, b T) T) (*Func, error) {
	if combine == nil {
		return nil, fmt.Errorf("comm: NewFunc %q: combine is nil; give the function of two values", name)
	}
	f := newFunc(name, combine)
	if problem := f.Problem(); problem != nil {
		return nil, problem
	}
	return f, nil
}

func newFunc[T any](name string, combine func(a, b T) T) *Func {
	return backend.MakeFunc(name, reflect.TypeFor[T](), func(dst, src unsafe.Pointer, n int) {
		d, s := unsafe.Slice((*T)(dst), n), unsafe.Slice((*T)(src), n)
		for i := range d {
			d[i] = combine(d[i], s[i])
		}
	})
}

// funcCall returns call by f on elements of type T.
func funcCall[T any](call Call, f *Func) Call {
	call.Op, call.Func = Custom, f.On(reflect.TypeFor[T]())
	return call
}

// AllReduceFunc is AllReduce by a user-defined operation, on elements of the
// type that f was made for.
func AllReduceFunc[T any](ctx context.Context, c *Comm, buf []T, f *Func) error {
	b := Of(buf)
	return c.Do(ctx, funcCall[T](Call{Kind: AllReduceKind, Dst: b, Src: b}, f))
}

// ReduceFunc is Reduce by a user-defined operation.
func ReduceFunc[T any](ctx context.Context, c *Comm, dst, src []T, f *Func, root int) error {
	return c.Do(ctx, funcCall[T](Call{Kind: ReduceKind, Root: root, Dst: Of(dst), Src: Of(src)}, f))
}

// ReduceScatterFunc is ReduceScatter by a user-defined operation.
func ReduceScatterFunc[T any](ctx context.Context, c *Comm, dst, src []T, f *Func) error {
	return c.Do(ctx, funcCall[T](Call{Kind: ReduceScatterKind, Dst: Of(dst), Src: Of(src)}, f))
}

// ScanFunc is Scan by a user-defined operation.
func ScanFunc[T any](ctx context.Context, c *Comm, dst, src []T, f *Func) error {
	return c.Do(ctx, funcCall[T](Call{Kind: ScanKind, Dst: Of(dst), Src: Of(src)}, f))
}

// ExscanFunc is Exscan by a user-defined operation.
func ExscanFunc[T any](ctx context.Context, c *Comm, dst, src []T, f *Func) error {
	return c.Do(ctx, funcCall[T](Call{Kind: ExscanKind, Dst: Of(dst), Src: Of(src)}, f))
}

// A Loc is a value and where it was, such as the index of a row or the number of a rank: an
// element for MinLoc and MaxLoc, as MPI's pairs are.
type Loc[T Ordered] struct {
	Value T
	Index int64
}

// Ordered are the Go types of values that have a least and a greatest.
type Ordered interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~int | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uint | ~float32 | ~float64
}

// MinLoc returns the reduction to the element with the least Value: of several such, to the
// one with the least Index. NaN counts as less than any number, so that it is seen. Keep the
// Func for more than one call. T cannot be a 16-bit floating-point type: convert it to float32.
func MinLoc[T Ordered]() *Func {
	return locFunc("minloc", func(a, b T) bool { return a < b })
}

// MaxLoc is MinLoc for the greatest Value. NaN counts as greater than any number.
func MaxLoc[T Ordered]() *Func {
	return locFunc("maxloc", func(a, b T) bool { return a > b })
}

func locFunc[T Ordered](name string, before func(a, b T) bool) *Func {
	f := newFunc(name, func(a, b Loc[T]) Loc[T] {
		aNaN, bNaN := a.Value != a.Value, b.Value != b.Value
		switch {
		case aNaN != bNaN:
			if bNaN {
				return b
			}
		case before(b.Value, a.Value), !before(a.Value, b.Value) && b.Index < a.Index:
			return b
		}
		return a
	})
	if dtype.Exactly[T]().Narrow() {
		f.Refuse(fmt.Errorf("%s is not defined on %v; convert the values to float32", name, reflect.TypeFor[Loc[T]]()))
	}
	return f
}
