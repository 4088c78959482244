package checkpoint

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/gorun-spmd/gorun/checkpoint/safetensors"
	"github.com/gorun-spmd/gorun/tensor"
)

// dtype returns the element type; validate has checked it.
func (t *tensorEntry) dtype() tensor.DType {
	dt, _ := safetensors.ParseName(t.DType)
	return dt
}

func (c *chunkEntry) box() box { return box{c.Offset, c.Shape} }

// An entryError is about element i of one of the lists of an index.
type entryError struct {
	list string
	i    int
	err  error
}

func (e *entryError) Error() string { return e.err.Error() }
func (e *entryError) Unwrap() error { return e.err }

// validate checks that all of x fits together, so that what reads it need not:
// sizes do not overflow, chunks lie within their files and cover their tensors
// once, and no name leads out of the folder.
func (x *index) validate() error {
	if x.BlockBytes < 1 || x.BlockBytes > math.MaxInt32 {
		return fmt.Errorf("block_bytes is %d; it must be from 1 to 2³¹-1", x.BlockBytes)
	}
	if x.Step < 0 {
		return fmt.Errorf("step is %d", x.Step)
	}
	names := map[string]bool{}
	for i, f := range x.Files {
		var err error
		switch {
		case !safetensors.PlainName(f.Name):
			err = fmt.Errorf("file %d is named %q, which is not the plain name of a file beside the index", i, f.Name)
		case names[f.Name]:
			err = fmt.Errorf("file %q is listed twice", f.Name)
		case f.Bytes < 0 || f.CRC32C != "" && !validHex(f.CRC32C, 1):
			err = fmt.Errorf("file %q has %d bytes and the checksum %q", f.Name, f.Bytes, f.CRC32C)
		}
		if err != nil {
			return &entryError{"files", i, err}
		}
		names[f.Name] = true
	}
	clear(names)
	for i := range x.Tensors {
		t := &x.Tensors[i]
		if t.Name == "" || names[t.Name] {
			return &entryError{"tensors", i, fmt.Errorf("tensor %q is listed twice, or has no name", t.Name)}
		}
		names[t.Name] = true
		if err := x.validateTensor(t); err != nil {
			return &entryError{"tensors", i, fmt.Errorf("tensor %q: %w", t.Name, err)}
		}
	}
	for name := range x.Values {
		if name == "" || names[name] {
			return fmt.Errorf("value %q has no name, or that of a tensor", name)
		}
	}
	return nil
}

func (x *index) validateTensor(t *tensorEntry) error {
	dt, ok := safetensors.ParseName(t.DType)
	if !ok {
		return fmt.Errorf("element type %q is unknown", t.DType)
	}
	total, ok := safetensors.Bytes(dt, t.Shape)
	if !ok {
		return fmt.Errorf("shape %v is negative or too large", t.Shape)
	}
	for i := range t.Chunks {
		c := &t.Chunks[i]
		if err := x.validateChunk(t, c); err != nil {
			return fmt.Errorf("chunk %d: %w", i, err)
		}
		total -= c.box().numel() * dt.Size() // neither wraps: all are within the tensor, and see below
		if total < 0 {
			break
		}
	}
	if total != 0 {
		return fmt.Errorf("its chunks have %d bytes fewer than shape %v; each element must be there once", total, t.Shape)
	}
	return t.disjoint()
}

func (x *index) validateChunk(t *tensorEntry, c *chunkEntry) error {
	if len(c.Offset) != len(t.Shape) || len(c.Shape) != len(t.Shape) {
		return fmt.Errorf("offset %v and shape %v are not of the tensor's %d dimensions", c.Offset, c.Shape, len(t.Shape))
	}
	for d, size := range t.Shape {
		if c.Offset[d] < 0 || c.Shape[d] < 1 || c.Offset[d] > size || c.Shape[d] > size-c.Offset[d] {
			return fmt.Errorf("shape %v at %v is empty or not within the tensor's shape %v", c.Shape, c.Offset, t.Shape)
		}
	}
	n := c.box().numel() * t.dtype().Size()
	switch {
	case c.File < 0 || c.File >= len(x.Files):
		return fmt.Errorf("file %d; there are %d", c.File, len(x.Files))
	case c.At < 0 || c.At > x.Files[c.File].Bytes || n > x.Files[c.File].Bytes-c.At:
		return fmt.Errorf("%d bytes at byte %d are not within the %d bytes of %s", n, c.At, x.Files[c.File].Bytes, x.Files[c.File].Name)
	case c.CRC32C != "" && !validHex(c.CRC32C, (n-1)/x.BlockBytes+1):
		return fmt.Errorf("%d bytes do not have %d hex digits of checksums in blocks of %d bytes", n, len(c.CRC32C), x.BlockBytes)
	}
	return nil
}

// disjoint returns an error if two chunks share an element. It sorts them along
// the first dimension that divides them, and compares those that meet there.
func (t *tensorEntry) disjoint() error {
	divides := func(d int) bool {
		return slices.ContainsFunc(t.Chunks, func(c chunkEntry) bool { return c.Shape[d] != t.Shape[d] })
	}
	d := 0
	for d < len(t.Shape) && !divides(d) {
		d++
	}
	if d == len(t.Shape) {
		return nil // each chunk is whole, and by their size there is one at most
	}
	order := slices.Clone(t.Chunks)
	slices.SortFunc(order, func(a, b chunkEntry) int { return cmp.Compare(a.Offset[d], b.Offset[d]) })
	for i, a := range order {
		for _, b := range order[i+1:] {
			if b.Offset[d] >= a.Offset[d]+a.Shape[d] {
				break
			}
			if a.box().overlaps(b.box()) {
				return fmt.Errorf("the chunks of shape %v at %v and of shape %v at %v overlap", a.Shape, a.Offset, b.Shape, b.Offset)
			}
		}
	}
	return nil
}
