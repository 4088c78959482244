package dtype

import "math"

// F16 is an IEEE 754 half-precision number, by its bits.
type F16 uint16

// BF16 is a bfloat16 number (the upper half of a float32), by its bits.
type BF16 uint16

// ToF16 rounds f to the nearest half, ties to even; a number that is too large becomes
// infinite.
func ToF16(f float32) F16 {
	b := math.Float32bits(f)
	sign := F16(b >> 16 & 0x8000)
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000: // NaN
		return sign | 0x7e00
	case b >= 0x477ff000: // rounds to 2¹⁶ or more
		return sign | 0x7c00
	case b >= 0x38800000: // normal
		b += 0xfff + b>>13&1 // round to nearest even on the 13 bits dropped
		return sign | F16((b-0x38000000)>>13)
	default: // subnormal: adding 0.5 aligns the 10 bits and rounds them
		return sign | F16(math.Float32bits(math.Float32frombits(b)+0.5)-0x3f000000)
	}
}

// Float32 returns h exactly.
func (h F16) Float32() float32 {
	sign := uint32(h&0x8000) << 16
	exp, man := uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exp {
	case 0:
		f := float32(man) * (1.0 / (1 << 24))
		return math.Float32frombits(math.Float32bits(f) | sign)
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | man<<13)
	default:
		return math.Float32frombits(sign | (exp+112)<<23 | man<<13)
	}
}

// ToBF16 rounds f to the nearest bfloat16, ties to even.
func ToBF16(f float32) BF16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 { // NaN stays NaN
		return BF16(b>>16 | 0x40)
	}
	return BF16((b + 0x7fff + b>>16&1) >> 16)
}

// Float32 returns h exactly.
func (h BF16) Float32() float32 { return math.Float32frombits(uint32(h) << 16) }
