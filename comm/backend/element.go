package backend

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/internal/structs"
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/fold"
)

// Of returns the memory of s. It does not copy.
func Of[T any](s []T) Buffer {
	b := Buffer{Ptr: unsafe.Pointer(unsafe.SliceData(s)), Count: len(s), DType: dtype.Exactly[T]()}
	if b.DType == dtype.Invalid {
		return b.as(reflect.TypeFor[T]())
	}
	return b
}

// as returns b with elements of type t, which Exactly does not know.
func (b Buffer) as(t reflect.Type) Buffer {
	if b.DType = dtype.Like(t); b.DType == dtype.Invalid {
		b.DType, b.of = dtype.Uint8, structs.Of(t)
		b.Count *= b.of.Type().Size
	}
	return b
}

// structType returns the type of c's elements if it has no DType, else nil.
func (c *Call) structType() *structs.Type {
	switch {
	case c.Src.of != 0:
		return c.Src.of.Type()
	case c.Dst.of != 0:
		return c.Dst.of.Type()
	}
	return nil
}

// Width returns how many elements of DType make one element of the user's.
func (c *Call) Width() int {
	if t := c.structType(); t != nil {
		return t.Size
	}
	return 1
}

// CheckTypes returns what is wrong with the type of the elements, nil if nothing is. Problem does so too.
func (c *Call) CheckTypes() error {
	if !c.ofStructs() {
		return nil
	}
	return c.checkTypes()
}

// ofStructs reports whether a buffer's elements have no DType.
func (c *Call) ofStructs() bool { return c.Dst.of|c.Src.of != 0 }

// checkTypes is CheckTypes for elements without a DType.
func (c *Call) checkTypes() error {
	dst, src := c.Dst.of, c.Src.of
	t := c.structType()
	switch {
	case t.Problem != nil:
		return t.Problem
	case c.Dst.DType.Size() > 0 && c.Src.DType.Size() > 0 && dst != src:
		return fmt.Errorf("dst holds %s and src %s; give both one type", c.Dst.elements(), c.Src.elements())
	case c.Kind.Reduces() && c.Op != fold.Custom:
		return fmt.Errorf("%v is not defined on %s; make a Func", c.Op, t.Name)
	}
	return nil
}

// elements returns the name of the type of b's elements.
func (b Buffer) elements() string {
	if b.of != 0 {
		return b.of.Type().Name
	}
	return b.DType.String()
}

// CountBytes replaces the counts of a checked call on a struct type, which are in elements, by
// those in bytes that a backend reads. room holds the new counts.
func (c *Call) CountBytes(room *[2][]int) {
	width := c.Width()
	if width == 1 {
		return
	}
	for i, counts := range []*[]int{&c.DstCounts, &c.SrcCounts} {
		if *counts == nil {
			continue
		}
		room[i] = room[i][:0]
		for _, n := range *counts {
			room[i] = append(room[i], n*width)
		}
		*counts = room[i]
	}
}

// A Coded is a byte of a Go value that package message sends encoded.
type Coded struct{ _ byte }

// ofObject reports whether the elements are those of an encoded value.
func (c *Call) ofObject() bool {
	t := c.structType()
	return t != nil && t == structs.Of(reflect.TypeFor[Coded]()).Type()
}
