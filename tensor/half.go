package tensor

import (
	"github.com/gorun-spmd/gorun/tensor/cpu"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Widen returns x as float32 if it is of a narrow type, else x itself.
func Widen(x *Tensor) *Tensor { return Cast(x, x.dtype.Wide()) }

// Refresh brings wide, the float32 numbers that half, of a narrow type, was rounded from, up
// to date with half: an element of half that is not wide's rounded was set by somebody else
// and is taken over; the other elements of wide keep what rounding lost.
func Refresh(wide, half *Tensor) {
	const op = "Refresh"
	wantSameShape(op, wide, half)
	if wide.dtype != Float32 || !half.dtype.Narrow() {
		throwShape(op, "%v and %v: want float32 and float16 or bfloat16", wide.brief(), half.brief())
	}
	if !wide.OnCPU() {
		rounded := Cast(wide, half.dtype)
		same, taken := Compare(kernel.OpEq, rounded, half), Widen(half)
		merged := Where(same, wide, taken)
		Copy(wide, merged)
		freeAll(rounded, same, taken, merged)
		return
	}
	cpu.Refresh(Data[float32](wide), half.dtype, half.ptr(op))
	keepAlive(wide, half)
}

// freeAll frees tensors.
func freeAll(tensors ...*Tensor) {
	for _, t := range tensors {
		t.Free()
	}
}
