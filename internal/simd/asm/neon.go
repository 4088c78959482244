package main

import (
	"fmt"
	"slices"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// neonLanes is how many float32 a vector of NEON has.
const neonLanes = 4

// lane is how many elements a vector has, size the bytes of one.
func (k kernel) lane() int {
	if k.double {
		return neonLanes / 2
	}
	return neonLanes
}

func (k kernel) size() int { return 4 * neonLanes / k.lane() }

// A neon is the machine of arm64's Advanced SIMD, NEON.
//
// Vectors have no masks. The last elements of a slice, fewer than a vector, are loaded one
// or two at a time; the other lanes are zeros then.
type neon struct {
	c       *build.Context
	numbers *numbers
	name    string // of the function
	double  bool   // elements are float64

	ptrs      map[string]reg.GPVirtual
	given     map[string]reg.GPVirtual // the slices as they were given, which may be nil
	scalars   map[string]operand.Op
	constants map[uint64]operand.Op // in registers
	used      map[uint64]bool       // constants seen, in a rehearsal, except for coefficients
	optional  map[string]bool       // slices that may be nil, seen in a rehearsal
	base      reg.GPVirtual         // of the constants in memory
	ahead     int                   // elements from the pointers to this vector
	count     operand.Op            // elements of a part of a vector; nil: all
	mask      operand.Op            // of those lanes
	labels    int
}

// Numbers are the constants of one file, each 16 bytes wide.
type numbers struct {
	at    map[uint64]int // offset by the first 8 bytes
	order []uint64
}

// first is the offset of the first constant: before it are the numbers of the lanes.
const first = 16

// offset returns where the constant with these bits lies.
func (p *numbers) offset(bits uint64) int {
	at, ok := p.at[bits]
	if !ok {
		at = first + 16*len(p.order)
		p.at[bits] = at
		p.order = append(p.order, bits)
	}
	return at
}

func (x *neon) reg() operand.Op { return x.c.ZMM() }

// op writes an instruction whose result goes to a new register.
func (x *neon) op(name string, ops ...operand.Op) operand.Op {
	dst, name := x.reg(), x.ofType(name)
	instruct(x.c, name, []operand.Op{dst}, ops, append([]operand.Op{dst}, ops...)...)
	return dst
}

// into writes an instruction that changes dst.
func (x *neon) into(name string, dst operand.Op, ops ...operand.Op) {
	name = x.ofType(name)
	instruct(x.c, name, []operand.Op{dst}, append([]operand.Op{dst}, ops...), append([]operand.Op{dst}, ops...)...)
}

// ofType returns the name of an instruction on elements of the machine's type.
func (x *neon) ofType(name string) string {
	if x.double && slices.Contains([]string{"SSHR", "FCVTNS", "SCVTF"}, name) {
		panic(name + " has no form for 64 bits")
	}
	if x.double && (threes[name] != 0 || slices.Contains(sized, name)) {
		return name + doubleMark
	}
	return name
}

// fromMemory writes a load of as many bytes as its name says into dst.
func (x *neon) fromMemory(name string, m operand.Mem, dst operand.Op) {
	instruct(x.c, name, []operand.Op{dst}, []operand.Op{m}, m, dst)
}

func (x *neon) toMemory(name string, v operand.Op, m operand.Mem) {
	instruct(x.c, name, nil, []operand.Op{v, m}, v, m)
}

func (x *neon) k(v float64) operand.Op        { return x.constant(bitsOf(v, x.double)) }
func (x *neon) bits(b uint64) operand.Op      { return x.constant(filled(b, x.double)) }
func (x *neon) value(v float64) operand.Op    { return x.k(v) }
func (x *neon) valueBits(b uint64) operand.Op { return x.bits(b) }
func (x *neon) copy(a operand.Op) operand.Op  { return x.op("MOV", a) }
func (x *neon) set(dst, a operand.Op) {
	instruct(x.c, "MOV", []operand.Op{dst}, []operand.Op{a}, dst, a)
}
func (x *neon) s(name string) operand.Op       { return x.scalars[name] }
func (x *neon) add(a, b operand.Op) operand.Op { return x.op("FADD", a, b) }
func (x *neon) sub(a, b operand.Op) operand.Op { return x.op("FSUB", a, b) }
func (x *neon) mul(a, b operand.Op) operand.Op { return x.op("FMUL", a, b) }
func (x *neon) div(a, b operand.Op) operand.Op { return x.op("FDIV", a, b) }
func (x *neon) sqrt(a operand.Op) operand.Op   { return x.op("FSQRT", a) }
func (x *neon) and(a, b operand.Op) operand.Op { return x.op("AND", a, b) }
func (x *neon) or(a, b operand.Op) operand.Op  { return x.op("ORR", a, b) }
func (x *neon) xor(a, b operand.Op) operand.Op { return x.op("EOR", a, b) }
func (x *neon) abs(a operand.Op) operand.Op    { return x.op("FABS", a) }
func (x *neon) sign(a operand.Op) operand.Op   { return x.and(a, x.bits(x.signBit())) }

func (x *neon) signBit() uint64 {
	if x.double {
		return 1 << 63
	}
	return 1 << 31
}

func (x *neon) addInt(a, b operand.Op) operand.Op { return x.op("ADD int", a, b) }
func (x *neon) subInt(a, b operand.Op) operand.Op { return x.op("SUB int", a, b) }
func (x *neon) toInt(a operand.Op) operand.Op     { return x.op("FCVTNS", a) }
func (x *neon) fromInt(a operand.Op) operand.Op   { return x.op("SCVTF", a) }
func (x *neon) roundEven(a operand.Op) operand.Op { return x.op("FRINTN", a) }

func (x *neon) scale(a, n operand.Op) operand.Op {
	if x.double {
		return scaleDouble(x, a, n)
	}
	return scaleInTwo(x, a, n)
}

func (x *neon) shiftLeft(a operand.Op, n int) operand.Op     { return x.op("SHL", a, operand.U64(n)) }
func (x *neon) shiftRight(a operand.Op, n int) operand.Op    { return x.op("USHR", a, operand.U64(n)) }
func (x *neon) shiftRightInt(a operand.Op, n int) operand.Op { return x.op("SSHR", a, operand.U64(n)) }

// constant is one in a register, loaded unless it is in one.
func (x *neon) constant(b uint64) operand.Op {
	if x.used != nil {
		x.used[b] = true
	}
	if r, ok := x.constants[b]; ok {
		return r
	}
	return x.fresh(b)
}

// fresh loads a constant into a register of its own.
func (x *neon) fresh(b uint64) operand.Op {
	r := x.reg()
	x.fromMemory("FMOVQ", operand.Mem{Base: x.base, Disp: x.numbers.offset(b)}, r)
	return r
}

func (x *neon) fma(a, b, c operand.Op) operand.Op {
	r := x.copy(c)
	x.into("FMLA", r, a, b)
	return r
}

func (x *neon) fnma(a, b, c operand.Op) operand.Op {
	r := x.copy(c)
	x.into("FMLS", r, a, b)
	return r
}

func (x *neon) fmaTo(acc, a, b operand.Op) { x.into("FMLA", acc, a, b) }

func (x *neon) addTo(acc, v operand.Op) { x.set(acc, x.add(acc, v)) }

// poly loads each coefficient into the register that becomes the sum: a copy from another
// register would take as long.
func (x *neon) poly(a operand.Op, coefficients ...float64) operand.Op {
	bits := func(i int) uint64 { return bitsOf(coefficients[i], x.double) }
	p := x.fresh(bits(len(coefficients) - 1))
	for i := len(coefficients) - 2; i >= 0; i-- {
		next := x.fresh(bits(i))
		x.into("FMLA", next, p, a)
		p = next
	}
	return p
}

func (x *neon) maxKeep(a, b operand.Op) operand.Op { return x.choose(x.greater(a, b), a, b) }
func (x *neon) minKeep(a, b operand.Op) operand.Op { return x.choose(x.less(a, b), a, b) }

// FMAX and FMIN return NaN if either is, and take -0 for less than 0.
func (x *neon) atLeast(low, a operand.Op) operand.Op    { return x.op("FMAX", low, a) }
func (x *neon) atMost(high, a operand.Op) operand.Op    { return x.op("FMIN", high, a) }
func (x *neon) maxSigned(a, b operand.Op) operand.Op    { return x.op("FMAX", a, b) }
func (x *neon) minSigned(a, b operand.Op) operand.Op    { return x.op("FMIN", a, b) }
func (x *neon) max(a, b operand.Op) operand.Op          { return x.op("FMAX", a, b) }
func (x *neon) maxNumber(a, b operand.Op) operand.Op    { return x.maxKeep(b, a) }
func (x *neon) less(a, b operand.Op) operand.Op         { return x.op("FCMGT", b, a) }
func (x *neon) lessOrEqual(a, b operand.Op) operand.Op  { return x.op("FCMGE", b, a) }
func (x *neon) greater(a, b operand.Op) operand.Op      { return x.op("FCMGT", a, b) }
func (x *neon) equal(a, b operand.Op) operand.Op        { return x.op("FCMEQ", a, b) }
func (x *neon) choose(m, yes, no operand.Op) operand.Op { return x.insert(x.copy(no), yes, m) }

// unordered is only asked of a number and itself.
func (x *neon) unordered(a, b operand.Op) operand.Op {
	if a != b {
		panic("unordered of two numbers")
	}
	return x.op("NOT", x.equal(a, a))
}

// insert overwrites the lanes of r in mask m.
func (x *neon) insert(r, yes, m operand.Op) operand.Op {
	x.into("BIT", r, yes, m)
	return r
}

func (x *neon) inMask(v operand.Op, start float64) operand.Op {
	switch {
	case x.mask == nil:
		return v
	case start != 0:
		return x.choose(x.mask, v, x.k(start))
	default:
		return x.and(v, x.mask)
	}
}

// at is where this vector's elements of size bytes are, in the slice of that name.
func (x *neon) at(name string, size int) operand.Mem {
	p, ok := x.ptrs[name]
	if !ok {
		panic("no slice " + name)
	}
	return operand.Mem{Base: p, Disp: x.ahead * size}
}

func (x *neon) isDouble() bool { return x.double }

// size is the bytes of an element.
func (x *neon) size() int {
	if x.double {
		return 8
	}
	return 4
}

func (x *neon) load(name string) operand.Op {
	v := x.reg()
	x.loadInto(name, v)
	return v
}

func (x *neon) loadInto(name string, v operand.Op) {
	m := x.at(name, x.size())
	switch {
	case x.count == nil:
		x.fromMemory("FMOVQ", m, v)
		return
	case x.double: // one of two
		x.fromMemory("FMOVD", m, v)
		return
	}
	x.part(func() { x.fromMemory("FMOVS", m, v) }, func() { x.fromMemory("FMOVD", m, v) }, func() {
		instruct(x.c, "LD1 third", []operand.Op{v}, []operand.Op{v, m}, v, x.third(m))
	})
}

func (x *neon) store(name string, v operand.Op) {
	m := x.at(name, x.size())
	switch {
	case x.count == nil:
		x.toMemory("FMOVQ", v, m)
		return
	case x.double:
		x.toMemory("FMOVD", v, m)
		return
	}
	x.part(func() { x.toMemory("FMOVS", v, m) }, func() { x.toMemory("FMOVD", v, m) }, func() {
		instruct(x.c, "ST1 third", nil, []operand.Op{v, m}, v, x.third(m))
	})
}

// third is the address of the element after two, in a register.
func (x *neon) third(m operand.Mem) operand.Mem {
	p := x.c.GP64()
	instruct(x.c, "ADD", []operand.Op{p}, []operand.Op{m.Base}, operand.U64(m.Disp+8), m.Base, p)
	return operand.Mem{Base: p}
}

// part runs one for 1 element, two for 2 and both two and third for 3.
func (x *neon) part(one, two, third func()) {
	x.labels++
	single, done := fmt.Sprintf("single%d", x.labels), fmt.Sprintf("moved%d", x.labels)
	x.compare(x.count, 2)
	branch(x.c, "BLT", single)
	two()
	branch(x.c, "BEQ", done)
	third()
	branch(x.c, "B", done)
	x.c.Label(single)
	one()
	x.c.Label(done)
}

// compare sets the flags for branches on a and n.
func (x *neon) compare(a operand.Op, n uint64) {
	instruct(x.c, "CMP", nil, []operand.Op{a}, operand.U64(n), a)
}

func (x *neon) loadOr(name string, v float64) operand.Op {
	if x.used != nil {
		x.optional[name] = true
	}
	r := x.fresh(bitsOf(v, x.double))
	x.unlessNil(name, func() { x.loadInto(name, r) })
	return r
}

func (x *neon) unlessNil(name string, f func()) {
	if x.used != nil {
		x.optional[name] = true
		x.given[name] = x.ptrs[name]
	}
	x.labels++
	skip := fmt.Sprintf("skip%d", x.labels)
	branch(x.c, "CBZ", skip, x.given[name])
	f()
	x.c.Label(skip)
}

func (x *neon) loadF16(name string) operand.Op {
	v := x.reg()
	x.fromMemory("FMOVD", x.at(name, 2), v)
	return x.op("FCVTL", v)
}

func (x *neon) storeF16(name string, v operand.Op) {
	x.toMemory("FMOVD", x.op("FCVTN", v), x.at(name, 2))
}

func (x *neon) loadBF16(name string) operand.Op {
	v := x.reg()
	x.fromMemory("FMOVD", x.at(name, 2), v)
	return x.op("SHLL", v)
}

func (x *neon) storeLow(name string, v operand.Op) {
	x.toMemory("FMOVD", x.op("XTN", v), x.at(name, 2))
}
