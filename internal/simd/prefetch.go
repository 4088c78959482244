package simd

import "unsafe"

// Prefetch asks the processor to bring n bytes from p into its caches, which it
// does while the program goes on. It is advice, for rows that are read in an
// order that the processor cannot guess: it changes no result.
func Prefetch(p unsafe.Pointer, n int) {
	if ordinary.has(prefetchLinesKernel) && n > 0 {
		prefetchLines((*byte)(p), n)
	}
}
