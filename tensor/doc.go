// Package tensor computes with dense n-dimensional arrays on one device.
//
// A Tensor is a shape, an element type and a piece of a device's memory, with
// the elements in row-major order, without gaps. It knows nothing of ranks.
// Operators are functions that return a new tensor; the few that write into their first
// argument (AddTo, Copy, MatMulTo) say so in their names or docs. A gradient that has a
// kernel of its own is a function beside its operator (LayerNormGrad).
//
//	cpu := tensor.NewCPU(nil)
//	a := tensor.FromSlice(cpu, []float32{1, 2, 3, 4}, 2, 2)
//	b := tensor.MatMul(a, a, false, true) // a·aᵀ
//	fmt.Println(tensor.Data[float32](b))  // [5 11 11 25]
//
// # Errors
//
// An operator throws if it is misused: *ShapeError for sizes that do not fit, *TypeError
// for element types, *IndexError for an index out of range, *UseError for memory that is
// no longer the tensor's. It checks its arguments before it computes. The errors are
// thrown through internal/fault; dtensor.Try and its kin return them as ordinary errors.
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
// Close gives back the memory of all tensors made since Open, except of those that were
// kept; to use a tensor after that throws. Outside any scope a clean-up gives the memory
// back some time after the last reference is gone. A slice from Data or an address from
// Ptr is no reference: keep the tensor alive while you use them. Under the race detector
// memory that was given back is filled with NaN, so that a mistake shows.
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
// sense. Sums and products of integers and Bool are Int64.
//
// All operators and optimizer steps take the narrow types Float16 and BFloat16. They
// compute in float32 and round each element of the result once, to the nearest, ties to
// even; only Attention of BFloat16 on a GPU also rounds intermediate numbers. The state of
// an optimizer and the lse of Attention stay float32. BFloat16 has kernels of its own;
// Float16 is converted to float32 and back around the float32 kernels.
package tensor
