package checkpoint

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// How much of a tensor on a disk is in memory at a time, when it is loaded and when it is saved: its rows are read in
// the order of the file, so that fewer reads bring more of them.
const (
	storedBytes = 16 << 20
	savedBytes  = 64 << 20
)

// stored returns what has this rank's rows of t; ok is false if they are in memory.
func (t *namedTensor) stored() (s dtensor.Stored, ok bool) {
	if t.shards != nil {
		return nil, false
	}
	return t.tensor.Stored()
}

// stored reports whether f has a tensor whose rows lie on a disk.
func (f *fileTensor) stored() bool {
	for i := range f.members {
		if _, ok := f.members[i].namedTensor.stored(); ok {
			return true
		}
	}
	return false
}

// storesRows reports whether some tensor of the plan lies on a disk, on every rank of it alike.
func (p *plan) storesRows() bool {
	for i := range p.tensors {
		if _, ok := p.tensors[i].stored(); ok {
			return true
		}
	}
	return false
}

// excerpts notes a misuse if a tensor of s is part of what is to be saved.
func (s *State) excerpts() {
	for _, t := range s.tensors {
		if t.tensor != nil && t.tensor.ExcerptOf() != "" {
			s.misuse("tensor %q has those rows of %s that are in memory; add the Params and the State of the table instead", t.name,
				t.tensor.ExcerptOf())
		}
	}
}

// rowBytes is the size of what this rank has of a row of a tensor on a disk.
func (t *namedTensor) rowBytes() int {
	return t.dtype().Size() * ints.Product(t.tensor.LocalShape()[1:])
}

// writeStored writes this rank's rows of a tensor to w, and returns the checksums of their blocks. whole is
// the checksum of the file, which goes on.
func writeStored(w io.Writer, s dtensor.Stored, rows, rowBytes, blockBytes int, whole *uint32) (sums string, err error) {
	if err := s.Sync(); err != nil {
		return "", err
	}
	var text []byte
	left, block := blockBytes, uint32(0)
	err = eachRows(s, rows, rowBytes, savedBytes, func(_ int, its []byte) error {
		if err := writeAll(w, its); err != nil {
			return err
		}
		*whole = crc32.Update(*whole, castagnoli(), its)
		for len(its) > 0 {
			k := min(left, len(its))
			block = crc32.Update(block, castagnoli(), its[:k])
			if its, left = its[k:], left-k; left == 0 {
				text, left, block = fmt.Appendf(text, "%08x", block), blockBytes, 0
			}
		}
		return nil
	})
	if left < blockBytes {
		text = fmt.Appendf(text, "%08x", block)
	}
	return string(text), err
}

// eachRows reads rows rows of s, about size bytes of them at a time. It calls f with the number of the first row of these and with
// their bytes, which f may use until it returns.
func eachRows(s dtensor.Stored, rows, rowBytes, size int, f func(first int, b []byte) error) error {
	n := min(rows, max(1, size/rowBytes))
	b := make([]byte, n*rowBytes)
	for first := 0; first < rows; first += n {
		its := b[:min(n, rows-first)*rowBytes]
		if err := s.ReadRows(first, its); err != nil {
			return err
		}
		if err := f(first, its); err != nil {
			return err
		}
	}
	return nil
}

// readStored sets b to this rank's bytes from one on.
func readStored(s dtensor.Stored, from int, b []byte, rowBytes int) error {
	first, end := from/rowBytes, ints.DivUp(from+len(b), rowBytes)
	if from == first*rowBytes && len(b) == (end-first)*rowBytes {
		return s.ReadRows(first, b)
	}
	rows := make([]byte, (end-first)*rowBytes)
	if err := s.ReadRows(first, rows); err != nil {
		return err
	}
	copy(b, rows[from-first*rowBytes:])
	return nil
}

// fillStored reads a tensor whose rows lie on a disk, some of them at a time. The ranks of a host do it
// together.
func (l *loader) fillStored(ctx context.Context, f *fileTensor) error {
	t := &f.members[0]
	if len(f.members) > 1 || t.transposed() || t.at.Fused > 0 {
		l.keep(fmt.Errorf("tensor %q: its rows lie on a disk; a Mapping may give it another name, and neither transpose it nor cut it out",
			t.name))
	}
	s, _ := t.stored()
	mine, _ := local(t.tensor) // empty outside the mesh
	rowBytes, its := t.rowBytes(), layout.Held{}
	if len(mine.size) > 0 && mine.numel() > 0 {
		its = t.tensor.Layout().Held(t.mesh().Coord())
	}
	rows, n := its.N, max(1, storedBytes/max(1, rowBytes)/max(1, its.Stride))
	rounds := []int64{int64(ints.DivUp(rows, n)), 0}
	if l.err != nil {
		rounds[1] = 1
	}
	if err := comm.AllReduce(ctx, l.host, rounds, comm.Max); err != nil || rounds[1] != 0 {
		return err
	}
	for round := range int(rounds[0]) {
		first := round * n
		var wanted []box
		if first < rows { // with those in between that other ranks have, where rows are dealt out in turn
			b := box{append([]int{}, mine.offset...), append([]int{}, mine.size...)}
			b.offset[0], b.size[0] = its.Row(first), (min(n, rows-first)-1)*its.Stride+1
			wanted = []box{b}
		}
		boxes, err := tell(ctx, l.host, [][]box{wanted}, []int{len(t.shape())})
		if err != nil {
			return err
		}
		var targets []target
		for _, b := range wanted {
			targets = append(targets, target{b, make([]byte, b.numel()*f.entry.dtype().Size())})
		}
		if err := l.fill(ctx, f.entry, boxes[0], targets); err != nil {
			return err
		}
		for _, to := range targets {
			if l.err == nil {
				l.keep(named(f.entry, putStored(ctx, t.tensor, s, first, to.every(its.Stride), f.entry.dtype())))
			}
		}
	}
	return nil
}

// every returns every stride-th row of t, from its first on; it changes t.
func (t target) every(stride int) target {
	rowBytes := len(t.data) / t.box.size[0]
	n := ints.DivUp(t.box.size[0], stride)
	for i := range n {
		copy(t.data[i*rowBytes:], t.data[i*stride*rowBytes:][:rowBytes])
	}
	t.box.size[0] = n // of a box that is this target's alone
	t.data = t.data[:n*rowBytes]
	return t
}

// putStored sets rows to what was read, in the type of the tensor.
func putStored(ctx context.Context, t *dtensor.Tensor, s dtensor.Stored, first int, from target, dt tensor.DType) (err error) {
	if dt == t.DType() {
		return s.WriteRows(first, from.data)
	}
	failed := dtensor.Try(ctx, t.Mesh(), func() {
		x := tensor.New(tensor.NewCPU(nil), t.DType(), from.box.size...)
		defer x.Free()
		fillFrom(x, from.data, dt)
		err = s.WriteRows(first, unsafe.Slice((*byte)(x.Ptr()), x.Bytes()))
	})
	if failed != nil {
		return failed
	}
	return err
}
