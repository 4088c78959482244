package simd

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
)

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
	switch {
	case is32[T]():
		ordinary.compare(op, dst, as32(a), as32(b))
	case is64[T]():
		ordinary.compareDouble(op, dst, bitsIn[float64](a), bitsIn[float64](b))
	case T(0)-1 > 0 && unsafe.Sizeof(*new(T)) == 1:
		ordinary.compareBytes(op, dst, bitsIn[uint8](a), bitsIn[uint8](b))
	default:
		compareGo(op, dst, a, b)
	}
}

func (m Mode) compare(op Comparison, dst []bool, a, b []float32) {
	k := [...]kernel{equalKernel, notEqualKernel, lessKernel, lessOrEqualKernel}[op]
	vec := [...]func(wide bool, dst *bool, a, b *float32, n int){equalVec, notEqualVec, lessVec, lessOrEqualVec}[op]
	compareBy(m, k, vec, op, dst, a, b)
}

// compareBy does dst[i] = a[i] op b[i] in mode m, whole vectors by kernel k.
func compareBy[T float32 | float64](m Mode, k kernel, vec func(wide bool, dst *bool, a, b *T, n int), op Comparison, dst []bool, a, b []T) {
	n := m.whole(k, len(dst))
	for i := 0; i < n; i += chunk {
		vec(m.wide(), &dst[i], &a[i], &b[i], min(chunk, n-i))
	}
	compareGo(op, dst[n:], a[n:], b[n:])
}

// compareBytes is compare of unsigned bytes.
func (m Mode) compareBytes(op Comparison, dst []bool, a, b []uint8) {
	k := [...]kernel{equalBytesKernel, notEqualBytesKernel, lessBytesKernel, lessOrEqualBytesKernel}[op]
	vec := [...]func(wide bool, dst, a, b *byte, n int){equalBytesVec, notEqualBytesVec, lessBytesVec, lessOrEqualBytesVec}[op]
	d, n := bitsIn[uint8](dst), m.whole(k, len(dst)/4)*4
	for i := 0; i < n; i += 4 * chunk {
		vec(m.wide(), &d[i], &a[i], &b[i], min(4*chunk, n-i)/4)
	}
	compareGo(op, dst[n:], a[n:], b[n:])
}

func compareGo[T Number](op Comparison, dst []bool, a, b []T) {
	if words := len(dst) / 8; words > 0 && T(0)-1 > 0 { // bytes
		compareWords(op, bitsIn[uint64](dst)[:words], bitsIn[uint64](a)[:words], bitsIn[uint64](b)[:words])
		dst, a, b = dst[8*words:], a[8*words:], b[8*words:]
	}
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

// compareWords compares eight unsigned bytes at a time.
func compareWords(op Comparison, dst, a, b []uint64) {
	const high, ones = 0x8080808080808080, 0x0101010101010101
	switch op {
	case Equal, NotEqual:
		var flip uint64
		if op == Equal {
			flip = ones
		}
		for i := range dst {
			differ := a[i] ^ b[i]
			dst[i] = (differ&^high+(high-ones)|differ)&high>>7 ^ flip
		}
	case Less:
		for i := range dst {
			dst[i] = lessOfWords(a[i], b[i])
		}
	case LessOrEqual:
		for i := range dst {
			dst[i] = lessOfWords(b[i], a[i]) ^ ones
		}
	}
}

// lessOfWords has 1 in each byte where that of a is less than that of b, else 0. The lower seven bits are compared by a difference
// that borrows from the highest one.
func lessOfWords(a, b uint64) uint64 {
	const high = 0x8080808080808080
	least := (a | high) - b&^high
	return (^a&b | ^(a^b)&^least) & high >> 7
}

// Where does dst[i] = cond[i] ? a[i] : b[i] in mode m, which Writing or Moving returned.
func Where[T uint8 | uint16 | uint32 | uint64](m Mode, dst, a, b []T, cond []bool) {
	same("Where", len(dst), len(a), len(b), len(cond))
	switch unsafe.Sizeof(*new(T)) {
	case 1:
		m.whereBytes(bitsIn[uint8](dst), bitsIn[uint8](a), bitsIn[uint8](b), cond)
	case 4:
		m.where(bitsIn[float32](dst), bitsIn[float32](a), bitsIn[float32](b), cond)
	default:
		whereGo(dst, a, b, cond)
	}
}

func (m Mode) whereBytes(dst, a, b []uint8, cond []bool) {
	c, n := bitsIn[uint8](cond), m.whole(whereBytesKernel, len(dst)/4)*4
	for i := 0; i < n; i += 4 * chunk {
		whereBytesVec(m.code(), &dst[i], &a[i], &b[i], &c[i], min(4*chunk, n-i)/4)
	}
	whereGo(dst[n:], a[n:], b[n:], cond[n:])
}

func (m Mode) where(dst, a, b []float32, cond []bool) {
	n := m.whole(whereKernel, len(dst))
	for i := 0; i < n; i += chunk {
		whereVec(m.code(), &dst[i], &a[i], &b[i], &cond[i], min(chunk, n-i))
	}
	whereGo(bitsIn[uint32](dst[n:]), bitsIn[uint32](a[n:]), bitsIn[uint32](b[n:]), cond[n:])
}

// Truth does dst[i] = x[i] != 0, which NaN is.
func Truth[T Number](dst []bool, x []T) {
	same("Truth", len(dst), len(x))
	if is32[T]() {
		var zeros [truthPiece]float32
		for i := 0; i < len(dst); i += truthPiece {
			end := min(i+truthPiece, len(dst))
			ordinary.compare(NotEqual, dst[i:end], as32(x[i:end]), zeros[:end-i])
		}
		return
	}
	truthGo(dst, x)
}

// truthPiece is how many numbers Truth compares with zeros at a time.
const truthPiece = 1 << 10

// truthGo reads the bits of a number: all zeros except for the sign of a floating-point one are 0.
func truthGo[T Number](dst []bool, x []T) {
	d := bitsIn[uint8](dst)
	float := T(1)/2 != 0
	switch unsafe.Sizeof(*new(T)) {
	case 1:
		truthOf(d, bitsIn[uint8](x), 0)
	case 2:
		truthOf(d, bitsIn[uint16](x), 0)
	case 4:
		truthOf(d, bitsIn[uint32](x), 0)
	case 8:
		shift := 0
		if float {
			shift = 1
		}
		truthOf(d, bitsIn[uint64](x), shift)
	}
}

// TruthHalf is Truth of float16 or bfloat16, four at a time: the sum carries into the sign of a number whose other bits are not all 0.
func TruthHalf[H dtype.F16 | dtype.BF16](dst []bool, x []H) {
	same("TruthHalf", len(dst), len(x))
	const sign = 0x8000800080008000
	fours := len(x) / 4
	d, s := bitsIn[uint32](dst)[:fours], bitsIn[uint64](x)[:fours]
	for i, v := range s {
		v = (v&^sign + ^uint64(sign)) & sign >> 15
		v = (v | v>>8) & 0x0000ffff0000ffff
		d[i] = uint32(v | v>>16)
	}
	for i := 4 * fours; i < len(x); i++ {
		dst[i] = x[i]<<1 != 0
	}
}

func truthOf[B uint8 | uint16 | uint32 | uint64](dst []uint8, x []B, shift int) {
	top := unsafe.Sizeof(*new(B))*8 - 1
	dst = dst[:len(x)]
	for i, v := range x {
		v <<= shift & 1
		dst[i] = uint8((v | -v) >> top)
	}
}

// whereGo selects by masks, as branches on numbers that nobody foresees take ten times as long.
func whereGo[T uint8 | uint16 | uint32 | uint64](dst, a, b []T, cond []bool) {
	truth := bitsIn[uint8](cond) // 0 or 1
	if words := len(dst) / 8; words > 0 && unsafe.Sizeof(dst[0]) == 1 {
		d, x, y := bitsIn[uint64](dst)[:words], bitsIn[uint64](a)[:words], bitsIn[uint64](b)[:words]
		for i, c := range bitsIn[uint64](truth)[:words] {
			d[i] = y[i] ^ (x[i]^y[i])&(c<<8-c)
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
