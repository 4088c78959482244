package simd

import "unsafe"

// Prefetch has the processor load n bytes from p into its caches while the program goes
// on. It is for rows in an order that the processor cannot guess, and changes no result.
func Prefetch(p unsafe.Pointer, n int) {
	if ordinary.has(prefetchLinesKernel) && n > 0 {
		prefetchLines((*byte)(p), n)
	}
}
