package tensor

import (
	"github.com/gorun-spmd/gorun/tensor/cpu"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Widen returns x as float32 if it is of a narrow type, else x itself.
func Widen(x *Tensor) *Tensor { return Cast(x, x.dtype.Wide()) }

// Refresh updates wide, float32 weights, after somebody may have set elements of half,
// their copy in a narrow type. An element of half that is not wide's element rounded
// replaces it; the others keep the digits that rounding took from half.
func Refresh(wide, half *Tensor) {
	const op = "Refresh"
	wantSameShape(op, wide, half)
	if wide.dtype != Float32 || !half.dtype.Narrow() {
		throwShape(op, "%v and %v: want float32 and float16 or bfloat16", wide.brief(), half.brief())
	}
	if !OnHost(wide.dev) {
		rounded := Cast(wide, half.dtype)
		same, taken := Compare(kernel.OpEq, rounded, half), Widen(half)
		merged := Where(same, wide, taken)
		Copy(wide, merged)
		freeAll(rounded, same, taken, merged)
		return
	}
	if !HostComputes(wide.dev) {
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
