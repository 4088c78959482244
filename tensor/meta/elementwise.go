package meta

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// What a function that is no addition or multiplication counts as.
const function = 8

// Fill counts, and fills integers.
func (d *Device) Fill(dt dtype.DType, dst unsafe.Pointer, n int, v float64) {
	d.elements("Fill", dt, n, 0, 1)
	if !dt.Float() {
		d.compute(func() { d.real.Fill(dt, dst, n, v) })
	}
}

// Iota counts, and fills integers.
func (d *Device) Iota(dt dtype.DType, dst unsafe.Pointer, n, start int) {
	d.elements("Iota", dt, n, 0, 1)
	if !dt.Float() {
		d.compute(func() { d.real.Iota(dt, dst, n, start) })
	}
}

// Cast counts, and casts between integers. Integers from floats are 0.
func (d *Device) Cast(to dtype.DType, dst unsafe.Pointer, from dtype.DType, src unsafe.Pointer, n int) {
	d.count("Cast", n, n*(to.Size()+from.Size()))
	switch {
	case to.Float():
		d.narrows(dst, src)
	case from.Float():
		d.compute(func() { d.real.Fill(to, dst, n, 0) })
	default:
		d.compute(func() { d.real.Cast(to, dst, from, src, n) })
	}
}

// CopyLoop counts, and copies integers.
func (d *Device) CopyLoop(elemBytes int, dst, src unsafe.Pointer, l kernel.Loop) {
	d.count("CopyLoop", 0, 2*l.Numel()*elemBytes)
	if d.isReal(src) {
		d.compute(func() { d.real.CopyLoop(elemBytes, dst, src, l) })
	}
}

// Unary counts, and computes with integers.
func (d *Device) Unary(op kernel.UnaryOp, dt dtype.DType, dst, x unsafe.Pointer, n int) {
	d.elements(op.String(), dt, n, function, 2)
	if !dt.Float() {
		d.compute(func() { d.real.Unary(op, dt, dst, x, n) })
	}
}

// UnaryGrad counts.
func (d *Device) UnaryGrad(op kernel.UnaryOp, dt dtype.DType, _ unsafe.Pointer, _ kernel.Slope, n int) {
	d.elements(op.String()+"Grad", dt, n, function, 3)
}

// Clamp counts.
func (d *Device) Clamp(dt dtype.DType, _, _ unsafe.Pointer, _, _ float64, n int) {
	d.elements("Clamp", dt, n, 2, 2)
}

// ClampInt counts and computes.
func (d *Device) ClampInt(dt dtype.DType, dst, x unsafe.Pointer, lo, hi int64, n int) {
	d.elements("Clamp", dt, n, 2, 2)
	d.compute(func() { d.real.ClampInt(dt, dst, x, lo, hi, n) })
}

// ClampGrad counts.
func (d *Device) ClampGrad(dt dtype.DType, _ unsafe.Pointer, _ kernel.Slope, _, _ float64, n int) {
	d.elements("ClampGrad", dt, n, 2, 3)
}

// Leaky counts.
func (d *Device) Leaky(dt dtype.DType, _ unsafe.Pointer, _ kernel.Slope, _ float64, n int) {
	d.elements("Leaky", dt, n, 2, 3)
}

// Binary counts, and computes with integers.
func (d *Device) Binary(op kernel.BinaryOp, dt dtype.DType, dst, a, b unsafe.Pointer, n int) {
	d.elements(op.String(), dt, n, 1, 3)
	if !dt.Float() {
		d.compute(func() { d.real.Binary(op, dt, dst, a, b, n) })
	}
}

// BinaryLoop counts, and computes with integers.
func (d *Device) BinaryLoop(op kernel.BinaryOp, dt dtype.DType, dst, a, b unsafe.Pointer, l kernel.Loop) {
	d.elements(op.String(), dt, l.Numel(), 1, 3)
	if !dt.Float() {
		d.compute(func() { d.real.BinaryLoop(op, dt, dst, a, b, l) })
	}
}

// BinaryScalar counts, and computes with integers.
func (d *Device) BinaryScalar(op kernel.BinaryOp, dt dtype.DType, dst, x unsafe.Pointer, v kernel.Number, n int) {
	d.elements(op.String(), dt, n, 1, 2)
	if !dt.Float() {
		d.compute(func() { d.real.BinaryScalar(op, dt, dst, x, v, n) })
	}
}

// CompareLoop counts, and compares integers. Floats compare as false.
func (d *Device) CompareLoop(op kernel.CompareOp, dt dtype.DType, dst, a, b unsafe.Pointer, l kernel.Loop) {
	n := l.Numel()
	d.count(op.String(), n, n*(2*dt.Size()+1))
	if dt.Float() {
		d.compute(func() { d.real.Fill(dtype.Bool, dst, n, 0) })
		return
	}
	d.compute(func() { d.real.CompareLoop(op, dt, dst, a, b, l) })
}

// Where counts, and chooses between integers.
func (d *Device) Where(elemBytes int, dst, a, b, cond unsafe.Pointer, l kernel.Loop) {
	n := l.Numel()
	d.count("Where", n, n*(3*elemBytes+1))
	if d.isReal(dst) {
		d.compute(func() { d.real.Where(elemBytes, dst, a, b, cond, l) })
	}
}

// Random counts, and makes integers.
func (d *Device) Random(r kernel.RandomNumbers, dst unsafe.Pointer, l kernel.Loop) {
	d.elements(r.Op.String(), r.DType, l.Numel(), 2*function, 1)
	if !r.DType.Float() {
		d.compute(func() { d.real.Random(r, dst, l) })
	}
}

// Axpy counts, and adds integers.
func (d *Device) Axpy(dt dtype.DType, y unsafe.Pointer, alpha float64, x unsafe.Pointer, n int) {
	d.elements("Axpy", dt, n, 2, 3)
	if !dt.Float() {
		d.compute(func() { d.real.Axpy(dt, y, alpha, x, n) })
	}
}
