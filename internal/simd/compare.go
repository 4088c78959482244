package simd

import "unsafe"

// A Comparison is one of two numbers.
type Comparison uint8

// The comparisons. All but NotEqual are false if an argument is NaN.
const (
	Equal Comparison = iota
	NotEqual
	Less
	LessOrEqual
)

// Compare does dst[i] = a[i] op b[i].
func Compare[T Number](op Comparison, dst []bool, a, b []T) {
	same("Compare", len(dst), len(a), len(b))
	if is32[T]() {
		ordinary.compare(op, dst, as32(a), as32(b))
		return
	}
	compareGo(op, dst, a, b)
}

func (m Mode) compare(op Comparison, dst []bool, a, b []float32) {
	k := [...]kernel{equalKernel, notEqualKernel, lessKernel, lessOrEqualKernel}[op]
	vec := [...]func(wide bool, dst *bool, a, b *float32, n int){equalVec, notEqualVec, lessVec, lessOrEqualVec}[op]
	n := m.whole(k, len(dst))
	for i := 0; i < n; i += chunk {
		vec(m.wide(), &dst[i], &a[i], &b[i], min(chunk, n-i))
	}
	compareGo(op, dst[n:], a[n:], b[n:])
}

func compareGo[T Number](op Comparison, dst []bool, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	switch op {
	case Equal:
		for i := range dst {
			dst[i] = a[i] == b[i]
		}
	case NotEqual:
		for i := range dst {
			dst[i] = a[i] != b[i]
		}
	case Less:
		for i := range dst {
			dst[i] = a[i] < b[i]
		}
	case LessOrEqual:
		for i := range dst {
			dst[i] = a[i] <= b[i]
		}
	}
}

// Where does dst[i] = cond[i] ? a[i] : b[i] in mode m, which Writing or Moving returned.
func Where[T uint8 | uint16 | uint32 | uint64](m Mode, dst, a, b []T, cond []bool) {
	same("Where", len(dst), len(a), len(b), len(cond))
	if unsafe.Sizeof(*new(T)) == 4 {
		m.where(bitsIn[float32](dst), bitsIn[float32](a), bitsIn[float32](b), cond)
		return
	}
	whereGo(dst, a, b, cond)
}

func (m Mode) where(dst, a, b []float32, cond []bool) {
	n := m.whole(whereKernel, len(dst))
	for i := 0; i < n; i += chunk {
		whereVec(m.code(), &dst[i], &a[i], &b[i], &cond[i], min(chunk, n-i))
	}
	whereGo(bitsIn[uint32](dst[n:]), bitsIn[uint32](a[n:]), bitsIn[uint32](b[n:]), cond[n:])
}

// whereGo selects by masks, as branches on numbers that nobody foresees take ten times as long.
func whereGo[T uint8 | uint16 | uint32 | uint64](dst, a, b []T, cond []bool) {
	truth := bitsIn[uint8](cond) // 0 or 1
	if words := len(dst) / 8; words > 0 && unsafe.Sizeof(dst[0]) == 1 {
		d, x, y := bitsIn[uint64](dst), bitsIn[uint64](a), bitsIn[uint64](b)
		for i, c := range bitsIn[uint64](truth) {
			d[i] = y[i] ^ (x[i]^y[i])&(c*0xff)
		}
		dst, a, b, truth = dst[8*words:], a[8*words:], b[8*words:], truth[8*words:]
	}
	a, b, truth = a[:len(dst)], b[:len(dst)], truth[:len(dst)]
	for i := range dst {
		w := b[i]
		dst[i] = w ^ (a[i]^w)&-T(truth[i])
	}
}

// bitsIn returns the bytes of s as elements of type W, as many as are whole.
func bitsIn[W, T any](s []T) []W {
	return unsafe.Slice((*W)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T)))/int(unsafe.Sizeof(*new(W))))
}
