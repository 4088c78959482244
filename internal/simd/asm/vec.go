package main

import (
	"sort"

	"github.com/mmcloughlin/avo/operand"
)

// A vec writes one vector's worth of a kernel. Its methods are the operations of a little
// vector language: those of a machine, and functions made of them. So one body serves every
// instruction set, and gives the same bits in all.
type vec struct{ machine }

// A machine writes the operations that an instruction set has. Each returns a register. An
// operand that may be a constant, from k or bits, may lie in memory.
type machine interface {
	// isDouble reports whether elements are float64; signBit is the highest bit of an element.
	isDouble() bool
	signBit() uint64

	// load reads this vector's elements; elements outside the mask are zero. loadOr
	// returns v where the slice is nil.
	load(slice string) operand.Op
	loadOr(slice string, v float64) operand.Op
	store(slice string, v operand.Op)
	unlessNil(slice string, f func())

	// Elements of two bytes. storeLow writes the lower half of each of float32's lanes.
	loadF16(slice string) operand.Op
	storeF16(slice string, v operand.Op)
	loadBF16(slice string) operand.Op
	storeLow(slice string, v operand.Op)

	// k and bits are constants that may lie in memory, value and valueBits those in a
	// register, s a scalar parameter.
	k(v float64) operand.Op
	bits(b uint64) operand.Op
	value(v float64) operand.Op
	valueBits(b uint64) operand.Op
	s(scalar string) operand.Op

	// copy moves an operand into a register of its own, to be overwritten; set overwrites dst.
	copy(a operand.Op) operand.Op
	set(dst, a operand.Op)

	// b may be a constant.
	add(a, b operand.Op) operand.Op
	sub(a, b operand.Op) operand.Op
	mul(a, b operand.Op) operand.Op
	div(a, b operand.Op) operand.Op
	sqrt(a operand.Op) operand.Op

	// fma is a·b + c; fnma is c - a·b. b may be a constant. fmaTo adds a·b to acc, and a
	// may be a constant; addTo adds v.
	fma(a, b, c operand.Op) operand.Op
	fnma(a, b, c operand.Op) operand.Op
	fmaTo(acc, a, b operand.Op)
	addTo(acc, v operand.Op)

	// poly is the polynomial in a whose coefficients are given from the lowest, by
	// Horner's rule.
	poly(a operand.Op, coefficients ...float64) operand.Op

	// maxKeep and minKeep return b where either is NaN, or where both are zeros. atLeast
	// and atMost bound a by a constant that is not 0; NaN stays.
	maxKeep(a, b operand.Op) operand.Op
	minKeep(a, b operand.Op) operand.Op
	atLeast(low, a operand.Op) operand.Op
	atMost(high, a operand.Op) operand.Op

	// maxSigned and minSigned are the larger and the smaller, NaN if either is NaN; -0 is
	// below 0. max is the larger, NaN if either is NaN; of zeros, either. maxNumber is the
	// larger, and a where b is NaN.
	maxSigned(a, b operand.Op) operand.Op
	minSigned(a, b operand.Op) operand.Op
	max(a, b operand.Op) operand.Op
	maxNumber(a, b operand.Op) operand.Op

	// Bits. b may be a constant.
	and(a, b operand.Op) operand.Op
	or(a, b operand.Op) operand.Op
	xor(a, b operand.Op) operand.Op
	abs(a operand.Op) operand.Op
	sign(a operand.Op) operand.Op

	// Comparisons, false for NaN except for unordered. b may be a constant. choose returns yes
	// where the comparison holds, else no; yes may be a constant.
	less(a, b operand.Op) operand.Op
	lessOrEqual(a, b operand.Op) operand.Op
	greater(a, b operand.Op) operand.Op
	equal(a, b operand.Op) operand.Op
	unordered(a, b operand.Op) operand.Op
	choose(m, yes, no operand.Op) operand.Op

	// inMask is v with start in the lanes outside the mask.
	inMask(v operand.Op, start float64) operand.Op

	// Integers of an element's bits. b may be a constant. toInt rounds to the nearest; of NaN it is
	// some integer. shiftRightInt keeps the sign. Of 64 bits there are no shiftRightInt, toInt and fromInt.
	addInt(a, b operand.Op) operand.Op
	subInt(a, b operand.Op) operand.Op
	shiftLeft(a operand.Op, n int) operand.Op
	shiftRight(a operand.Op, n int) operand.Op
	shiftRightInt(a operand.Op, n int) operand.Op
	toInt(a operand.Op) operand.Op
	fromInt(a operand.Op) operand.Op

	// roundEven rounds to the nearest whole number, ties to even. scale is a·2ⁿ, rounded
	// once, for whole numbers n from -150 to 128, or -1076 to 1024 of float64.
	roundEven(a operand.Op) operand.Op
	scale(a, n operand.Op) operand.Op
}

// sorted returns the constants a rehearsal used, in order.
func sorted(used map[uint64]bool) []uint64 {
	var all []uint64
	for b := range used {
		all = append(all, b)
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	return all
}
