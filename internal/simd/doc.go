// Package simd computes on slices of numbers at the speed of the memory or of
// the vector units, whichever is slower.
//
// It knows nothing of tensors, ranks or devices: a function takes slices and
// fills the first of them. Each is defined by the loop in its comment, and the
// same loop, in plain Go, is what runs where there is no assembly. On amd64 the
// float32 functions, and those of float64 whose names end in Double, run in assembly
// for AVX-512 or for AVX2 with FMA, whichever the processor has, and on arm64 in
// assembly for NEON, except for those that move rows. Kernels of all three give the same
// bits, and so do the plain loops.
//
// # What holds for every function
//
// Slices that belong together have the same length, else the function panics:
// a wrong length is a bug of the caller. Length 0 is allowed and no alignment
// is needed. The destination comes first and may be one of the sources (the
// very same slice); slices that overlap otherwise are not allowed. Nothing is
// allocated and nothing is kept.
//
// The result for an element does not depend on where in the slice it stands:
// the ends of a slice run the same arithmetic under a mask. So a tensor cut in
// pieces gives the bits of the whole. Reductions add in an order fixed by the
// length alone, see Sum.
//
// Large results are written by non-temporal stores where that is faster; it changes no
// bit. A function that writes a whole slice chooses by its length. Functions of rows and
// of parts cannot, so they are methods of the Mode that Writing returns for the whole.
//
// A function runs its plain loop where the instruction set does not offer its kernel, so
// that another architecture can begin with one kernel.
//
// NaN and the infinities go in and out as IEEE 754 and PyTorch have it; Max and
// Min pass NaN on.
//
// # How it is built
//
// The assembly is written by a program, internal/simd/asm, a module of its own
// so that nobody who uses gorun needs the generator. A kernel is defined there once,
// for every instruction set. Assembly is called on pieces of at most 16 Ki elements
// and the loop over the pieces stays in Go: a goroutine inside assembly cannot be
// stopped for the garbage collector.
//
//go:generate go -C asm run .
package simd
