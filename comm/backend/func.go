package backend

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/internal/structs"
)

// A Func is a user-defined reduction on elements of one Go type, a small
// struct without pointers for instance. The zero Func is not valid: use NewFunc.
type Func struct {
	name    string
	size    int
	hash    uint32
	elem    reflect.Type
	combine func(dst, src unsafe.Pointer, n int) // see MakeFunc
	problem error                                // see Problem
}

// MakeFunc returns the reduction by combine, which sets each of n elements dst[i] to the combination of dst[i] and
// src[i], on elements of type t. NewFunc of package comm makes combine of a function of two values.
func MakeFunc(name string, t reflect.Type, combine func(dst, src unsafe.Pointer, n int)) *Func {
	f := &Func{name: name, size: int(t.Size()), elem: t, hash: structs.Hash(name, int(t.Size())), combine: combine}
	if problem := structs.Of(t).Type().Problem; problem != nil {
		f.problem = fmt.Errorf("comm: NewFunc %q: %w", name, problem)
	}
	return f
}

// Problem returns why f cannot be used, nil if it can.
func (f *Func) Problem() error { return f.problem }

// Refuse sets what Problem returns.
func (f *Func) Refuse(problem error) { f.problem = problem }

// On returns f for elements of type t: f itself, or a Func with a Problem if f is for another type. f may be nil.
func (f *Func) On(t reflect.Type) *Func {
	if f == nil || f.elem == t {
		return f
	}
	return &Func{problem: fmt.Errorf("the elements are of type %v and %q is a Func on %v; give it elements of its type", t, f.name, f.elem)}
}
