package simd

import "unsafe"

// Prefetch has the processor load n bytes from p into its caches while the program goes
// on. It is for rows in an order that the processor cannot guess, and changes no result.
func Prefetch(p unsafe.Pointer, n int) {
	if ordinary.has(prefetchLinesKernel) && n > 0 {
		prefetchLines((*byte)(p), n)
	}
}

// PrefetchRow prefetches row r of a table with rows of n elements.
func PrefetchRow[T Elem](table []T, r, n int) {
	if n > 0 {
		Prefetch(unsafe.Pointer(&table[r*n]), min(n*int(unsafe.Sizeof(table[0])), longestRow))
	}
}

// longestRow is how much of a row PrefetchRow prefetches: the processor does so with what follows.
const longestRow = 4 << 10
