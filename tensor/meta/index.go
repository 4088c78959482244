package meta

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// CheckIndex counts and checks: indices are real.
func (d *Device) CheckIndex(index kernel.Index, size int) (position, value int, ok bool) {
	d.elements("CheckIndex", index.DType, index.N, 0, 1)
	d.compute(func() { position, value, ok = d.real.CheckIndex(index, size) })
	return position, value, ok
}

// IndexSelect counts, and copies integers.
func (d *Device) IndexSelect(elemBytes int, dst, x unsafe.Pointer, index kernel.Index, a kernel.Axis) {
	d.byRow("IndexSelect", a.Outer*index.N, 0, 2*a.Outer*index.N*a.Inner*elemBytes)
	if d.isReal(x) {
		d.compute(func() { d.real.IndexSelect(elemBytes, dst, x, index, a) })
	}
}

// IndexAdd counts, and adds integers.
func (d *Device) IndexAdd(dt dtype.DType, dst, src unsafe.Pointer, index kernel.Index, a kernel.Axis) {
	n := a.Outer * index.N * a.Inner
	d.byRow("IndexAdd", a.Outer*index.N, n, 3*n*dt.Size())
	if !dt.Float() {
		d.compute(func() { d.real.IndexAdd(dt, dst, src, index, a) })
	}
}

// Gather counts, and copies integers.
func (d *Device) Gather(elemBytes int, dst, x unsafe.Pointer, p kernel.Pick) {
	d.count("Gather", 0, 2*p.Loop.Numel()*elemBytes)
	if d.isReal(x) {
		d.compute(func() { d.real.Gather(elemBytes, dst, x, p) })
	}
}

// Scatter counts, and copies or adds integers.
func (d *Device) Scatter(dt dtype.DType, add bool, dst, src unsafe.Pointer, p kernel.Pick) {
	d.elements("Scatter", dt, p.Loop.Numel(), 1, 3)
	if !dt.Float() {
		d.compute(func() { d.real.Scatter(dt, add, dst, src, p) })
	}
}

// OneHot counts, and writes integers.
func (d *Device) OneHot(dt dtype.DType, dst unsafe.Pointer, index kernel.Index, lo, classes int) {
	d.elements("OneHot", dt, index.N*classes, 0, 1)
	if !dt.Float() {
		d.compute(func() { d.real.OneHot(dt, dst, index, lo, classes) })
	}
}

// TakeRows counts, and copies integers.
func (d *Device) TakeRows(elemBytes int, dst, table unsafe.Pointer, ids kernel.Index, t kernel.Table, zero bool) {
	d.byRow("TakeRows", ids.N, 0, 2*ids.N*t.Dim*elemBytes)
	if d.isReal(table) {
		d.compute(func() { d.real.TakeRows(elemBytes, dst, table, ids, t, zero) })
	}
}

// PutRows counts, and copies integers.
func (d *Device) PutRows(dt dtype.DType, table, rows unsafe.Pointer, index kernel.Index, dim int) {
	d.byRow("PutRows", index.N, 0, 2*index.N*dim*dt.Size())
	if !dt.Float() {
		d.compute(func() { d.real.PutRows(dt, table, rows, index, dim) })
	}
}

// Unique counts, and finds the distinct ids, which are real.
func (d *Device) Unique(ids kernel.Index, lo, size int, k kernel.Distinct) (u, m, most int) {
	d.byRow("Unique", ids.N, 4*ids.N, 8*ids.N*ids.DType.Size())
	d.compute(func() { u, m, most = d.real.Unique(ids, lo, size, k) })
	return u, m, most
}

// SumSegments counts.
func (d *Device) SumSegments(dt dtype.DType, _, _ unsafe.Pointer, s kernel.Segments, dim int) {
	d.byRow("SumSegments", s.Rows, s.Rows*dim, (s.Rows+s.N)*dim*dt.Size())
}

// AddRows counts.
func (d *Device) AddRows(dt dtype.DType, _, _ unsafe.Pointer, index kernel.Index, dim int, _ float64) {
	d.elements("AddRows", dt, index.N*dim, 2, 3)
}

// RowPowSums counts.
func (d *Device) RowPowSums(dt dtype.DType, _, _ unsafe.Pointer, index kernel.Index, dim int, _ float64) {
	d.elements("RowPowSums", dt, index.N*dim, 2, 1)
}

// ScaleRows counts.
func (d *Device) ScaleRows(dt dtype.DType, _ unsafe.Pointer, index kernel.Index, _ unsafe.Pointer, dim int) {
	d.elements("ScaleRows", dt, index.N*dim, 1, 2)
}
