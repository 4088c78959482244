// Package tensor computes with dense n-dimensional arrays on one device.
//
// A Tensor is a shape, an element type and a piece of a device's memory, with
// the elements in row-major order, without gaps. It knows nothing of ranks.
// Operators are functions: values in, a new value out. Where a gradient has a kernel of its
// own it stands beside the operator (LayerNormGrad). The few forms that write into their
// first argument (AddTo, Copy, MatMulTo) say so in their names or docs.
//
//	cpu := tensor.NewCPU(nil)
//	a := tensor.FromSlice(cpu, []float32{1, 2, 3, 4}, 2, 2)
//	b := tensor.MatMul(a, a, false, true) // a·aᵀ
//	fmt.Println(tensor.Data[float32](b))  // [5 11 11 25]
//
// # Errors
//
// A misuse throws: *ShapeError for sizes that do not fit, *TypeError for element
// types, *IndexError for an index out of range, *UseError for memory that is no
// longer the tensor's. All is checked before any work. The errors are thrown
// through internal/fault, so that a boundary such as dtensor.Try hands them to the
// caller as ordinary ones.
//
// # Memory
//
// The memory of a tensor is outside Go's heap. Inside a Scope,
//
//	s := cpu.Open()
//	...
//	s.Keep(result)
//	s.Close()
//
// what was allocated goes back at Close, except what was kept; to use it later
// throws. Outside any scope it goes back some time after the last reference is
// gone, by a clean-up. A slice from Data or an address from Ptr is no reference:
// keep the tensor alive while you use them. Under the race detector memory that
// went back is filled with NaN, so that a mistake shows.
//
// # Parallelism
//
// One goroutine at a time computes on a device. The kernels of the CPU use several
// processors for large arguments if GOMAXPROCS allows it; a rank normally has one.
// The bits of a result do not depend on it.
//
// # Types
//
// Arithmetic is for float32 (fast) and float64, and for integers where it makes
// sense. The narrow types Float16 and BFloat16 are computed with in float32, and each
// element of a result is rounded once, to the nearest, ties to even: all operators take
// them, and so do the updates of table rows; Attention of BFloat16 on a GPU rounds numbers
// in between too. What an optimizer remembers of them is float32, as Attention's lse is.
// BFloat16 has fast kernels; Float16 is widened and rounded around those of float32. Sums
// and products of integers and Bool are Int64.
package tensor
