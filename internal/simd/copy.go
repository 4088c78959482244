package simd

import "unsafe"

// large is from how many bytes on Copy is faster than Go's own copy, which there
// writes past the caches.
const large = 1 << 20

// An Elem is an element without pointers, whose bytes may be copied as such.
type Elem interface {
	Number | ~uint16 | bool
}

// Copy does dst[i] = src[i]. dst and src must not overlap.
func Copy[T Elem](dst, src []T) {
	same("Copy", len(dst), len(src))
	if len(dst)*int(unsafe.Sizeof(*new(T))) >= large {
		l := Writing(dst, src)
		l.copy(bytes(dst), bytes(src), copyVec)
		l.Done()
		return
	}
	copy(dst, src)
}

// CopyAhead is Copy of a piece of something larger than the caches.
func CopyAhead[T Elem](dst, src []T) {
	same("CopyAhead", len(dst), len(src))
	best.CopyAhead(bytes(dst), bytes(src))
}

// CopyAhead is the function CopyAhead at this level.
func (l Level) CopyAhead(dst, src []byte) { l.copy(dst, src, copyVec) }

// CopyNear is CopyAhead of a src that has been asked for, see Prefetch, and after
// which nothing follows: a row of a table.
func (l Level) CopyNear(dst, src []byte) {
	same("CopyNear", len(dst), len(src))
	l.copy(dst, src, copyNearVec)
}

// bytes is the memory of s.
func bytes[T Elem](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}

// copy is for slices larger than the caches: it asks for what it needs next, which
// copy does not.
func (l Level) copy(dst, src []byte, kernel func(level uint8, dst, src *byte, n int)) {
	const block = 4 * chunk // what copyPast copies
	whole := len(dst) &^ 63 // a multiple of the kernels' vectors
	if l == Scalar {
		whole = 0
	}
	i := 0
	if l == AVX512Past && uintptr(unsafe.Pointer(unsafe.SliceData(dst)))%64 == 0 {
		for ; whole-i >= block; i += block {
			copyPast(&dst[i], &src[i])
		}
	}
	for ; i < whole; i += block {
		kernel(uint8(l), &dst[i], &src[i], min(block, whole-i)/4)
	}
	copy(dst[whole:], src[whole:])
}
