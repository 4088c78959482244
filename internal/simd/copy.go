package simd

import "unsafe"

// large is the size in bytes from which the stores of Go's own copy are non-temporal. Copy
// is faster than that until the caches cannot keep the result.
const large = 1 << 20

// An Elem is an element without pointers, whose bytes may be copied as such.
type Elem interface {
	Number | ~uint16 | bool
}

// Copy does dst[i] = src[i]. dst and src must not overlap.
func Copy[T Elem](dst, src []T) {
	same("Copy", len(dst), len(src))
	if n := len(dst) * int(unsafe.Sizeof(*new(T))); n >= large {
		m := Copying(2 * n)
		m.copy(bytes(dst), bytes(src), copyKernel, copyVec)
		m.Done()
		return
	}
	copy(dst, src)
}

// CopyAhead is Copy for a part of data that is larger than the caches: it prefetches
// beyond the end of src.
func CopyAhead[T Elem](dst, src []T) {
	same("CopyAhead", len(dst), len(src))
	ordinary.CopyAhead(bytes(dst), bytes(src))
}

// CopyAhead is the function CopyAhead in this mode.
func (m Mode) CopyAhead(dst, src []byte) { m.copy(dst, src, copyKernel, copyVec) }

// CopyNear is CopyAhead for a src that is in the cache, see Prefetch, and does not prefetch
// beyond its end: it is for a row of a table.
func (m Mode) CopyNear(dst, src []byte) {
	same("CopyNear", len(dst), len(src))
	m.copy(dst, src, copyNearKernel, copyNearVec)
}

// bytes is the memory of s.
func bytes[T Elem](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}

// copy is for slices larger than the caches. Unlike Go's copy it prefetches what it writes. With AVX2 its non-temporal
// stores are those of Go's copy, which takes half the time of four streams side by side on Zen 3.
func (m Mode) copy(dst, src []byte, k kernel, vec func(level uint8, dst, src *byte, n int)) {
	const block = 4 * chunk // what copyNonTemporal copies
	if m.NonTemporal && !m.wide() {
		for ; len(dst) >= large; dst, src = dst[large:], src[large:] { // Go's copy of it all could not be stopped meanwhile
			copy(dst[:large], src)
		}
	}
	whole := len(dst) &^ 63 // a multiple of the kernels' vectors
	if !m.has(k) {
		whole = 0
	}
	i := 0
	if m.NonTemporal && m.wide() && uintptr(unsafe.Pointer(unsafe.SliceData(dst)))%64 == 0 {
		for ; whole-i >= block; i += block {
			copyNonTemporal(&dst[i], &src[i])
		}
	}
	for ; i < whole; i += block {
		vec(m.code(), &dst[i], &src[i], min(block, whole-i)/4)
	}
	copy(dst[whole:], src[whole:])
}

// Reverse does dst[i] = src[len(src)-1-i]. dst and src must not overlap.
func Reverse[T Elem](dst, src []T) {
	same("Reverse", len(dst), len(src))
	done := 0
	if unsafe.Sizeof(*new(T)) == 4 {
		done = ordinary.reverse(bitsIn[float32](dst), bitsIn[float32](src))
	}
	dst, src = dst[done:], src[:len(src)-done]
	for i := range dst {
		dst[i] = src[len(src)-1-i]
	}
}

// reverse is Reverse of the elements of which it returns the number, the last ones of src.
func (m Mode) reverse(dst, src []float32) int {
	n := m.whole(reverseKernel, len(src))
	src = src[len(src)-n:]
	for i := 0; i < n; i += chunk {
		m := min(chunk, n-i)
		reverseVec(&dst[i], &src[n-i-m], m)
	}
	return n
}
