package simd

import "unsafe"

// large is from how many bytes on Copy writes past the caches.
const large = 4 << 20

// An Elem is an element without pointers, whose bytes may be copied as such.
type Elem interface {
	Number | ~uint16 | bool
}

// Copy does dst[i] = src[i]. dst and src must not overlap.
func Copy[T Elem](dst, src []T) {
	same("Copy", len(dst), len(src))
	if len(dst)*int(unsafe.Sizeof(*new(T))) >= large {
		best.copyPast(bytes(dst), bytes(src))
		return
	}
	copy(dst, src)
}

// CopyPast does dst[i] = src[i] and leaves dst in memory rather than in the
// caches: for a piece of something large that nobody reads soon. The writes are
// visible to others, in order, when it returns. dst and src must not overlap.
func CopyPast[T Elem](dst, src []T) {
	same("CopyPast", len(dst), len(src))
	best.copyPast(bytes(dst), bytes(src))
}

// bytes is the memory of s.
func bytes[T Elem](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}

func (l Level) copyPast(dst, src []byte) {
	const line, block = 64, 4 * chunk
	from := int(-uintptr(unsafe.Pointer(unsafe.SliceData(dst))) % line) // the stores are of whole, aligned cache lines
	if l == Scalar || len(dst) < from+line {
		copy(dst, src)
		return
	}
	copy(dst[:from], src)
	to := from + (len(dst)-from)&^(line-1)
	for i := from; i < to; i += block {
		copyPastVec(l.wide(), &dst[i], &src[i], min(block, to-i)/4)
	}
	copy(dst[to:], src[to:])
}
