package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// An avx is the machine of AVX2, with eight float32 a vector, and of AVX-512, with sixteen; of float64 half as many.
type avx struct {
	c      *build.Context
	wide   bool
	double bool // elements are float64
	*pool

	ptrs        map[string]reg.GPVirtual
	scalars     map[string]operand.Op // a register, or with AVX2 the parameter in memory
	constants   map[uint64]operand.Op // registers, with AVX-512
	used        map[uint64]bool       // constants seen, in a rehearsal
	touched     []touch               // slices seen
	optional    bool                  // within unlessNil
	index       reg.GPVirtual         // elements done
	ahead       int                   // elements from index to this vector
	mask        operand.Op            // nil: all lanes
	nonTemporal bool                  // stores are non-temporal
	noPrefetch  bool                  // no prefetches
	labels      *int
}

// lane is how many elements a register holds.
func (x *avx) lane() int {
	lanes := 8
	if x.wide {
		lanes = 16
	}
	if x.double {
		lanes /= 2
	}
	return lanes
}

func (x *avx) isDouble() bool { return x.double }

// size is the bytes of an element.
func (x *avx) size() uint8 {
	if x.double {
		return 8
	}
	return 4
}

// reg returns a new vector register.
func (x *avx) reg() reg.Register {
	if x.wide {
		return x.c.ZMM()
	}
	return x.c.YMM()
}

// do writes the instruction of that name, operands in Go's order. The name is that for float32 and integers of 32 bits.
func (x *avx) do(name string, ops ...operand.Op) {
	if x.double {
		name = forDouble(name)
	}
	args := make([]reflect.Value, len(ops))
	for i, o := range ops {
		if k, ok := o.(constant); ok {
			o = k.Mem
			if x.wide && name == "VMOVUPS" {
				name = "VBROADCASTSS"
			} else if x.wide && name == "VMOVUPD" {
				name = "VBROADCASTSD"
			} else if x.wide {
				name += "_BCST"
			}
		}
		args[i] = reflect.ValueOf(o)
	}
	m := reflect.ValueOf(x.c).MethodByName(name)
	if !m.IsValid() {
		panic("no instruction " + name)
	}
	m.Call(args)
}

// forDouble returns the instruction for elements of 64 bits.
func forDouble(name string) string {
	switch name {
	case "VPADDD", "VPSUBD", "VPSLLD", "VPSRLD":
		return strings.TrimSuffix(name, "D") + "Q"
	case "VBROADCASTSS":
		return "VBROADCASTSD"
	case "VPSRAD", "VCVTPS2DQ", "VCVTDQ2PS":
		panic(name + " has no form for 64 bits with AVX2")
	}
	if base, ok := strings.CutSuffix(name, "PS"); ok {
		return base + "PD"
	}
	if base, ok := strings.CutSuffix(name, "PS_Z"); ok {
		return base + "PD_Z"
	}
	return name
}

// op writes an instruction whose result goes to a new register.
func (x *avx) op(name string, ops ...operand.Op) operand.Op {
	dst := x.reg()
	x.do(name, append(ops, dst)...)
	return dst
}

// k is a constant: a register, or its place in memory. It may only stand where an
// instruction can read memory: as the second operand.
func (x *avx) k(v float64) operand.Op   { return x.constant(bitsOf(v, x.double)) }
func (x *avx) bits(b uint64) operand.Op { return x.constant(filled(b, x.double)) }

func (x *avx) constant(b uint64) operand.Op {
	if x.used != nil {
		x.used[b] = true
	}
	if r, ok := x.constants[b]; ok {
		return r
	}
	return constant{x.table(b)}
}

// A constant is one in memory.
type constant struct{ operand.Mem }

func (x *avx) value(v float64) operand.Op    { return x.copy(x.k(v)) }
func (x *avx) valueBits(b uint64) operand.Op { return x.copy(x.bits(b)) }
func (x *avx) copy(a operand.Op) operand.Op  { return x.op("VMOVUPS", a) }
func (x *avx) set(dst, a operand.Op)         { x.do("VMOVUPS", a, dst) }

// s is the scalar parameter of that name, in a register.
func (x *avx) s(name string) operand.Op {
	p, ok := x.scalars[name]
	if !ok {
		panic("no scalar " + name)
	}
	if m, ok := p.(operand.Mem); ok {
		return x.op("VBROADCASTSS", m)
	}
	return p
}

// A touch is how a body uses a slice.
type touch struct {
	slice string
	size  uint8 // bytes of an element
}

// touch notes that the body uses a slice, except for those that may be nil: they are
// parameters, used in each row again.
func (x *avx) touch(name string, size uint8) {
	if x.optional {
		return
	}
	if t := (touch{name, size}); !slices.Contains(x.touched, t) {
		x.touched = append(x.touched, t)
	}
}

// at is where this vector's elements of size bytes are, in the slice of that name.
func (x *avx) at(name string, size uint8) operand.Mem {
	p, ok := x.ptrs[name]
	if !ok {
		panic("no slice " + name)
	}
	x.touch(name, size)
	return operand.Mem{Base: p, Index: x.index, Scale: size, Disp: x.ahead * int(size)}
}

// load reads this vector's elements; lanes outside the mask are zero.
func (x *avx) load(name string) operand.Op {
	v := x.reg()
	x.loadInto(name, v)
	return v
}

func (x *avx) loadInto(name string, v operand.Op) {
	m := x.at(name, x.size())
	switch {
	case x.mask == nil:
		x.do("VMOVUPS", m, v)
	case x.wide:
		x.do("VMOVUPS_Z", m, x.mask, v)
	default:
		x.do("VMASKMOVPS", m, x.mask, v)
	}
}

// loadOr reads this vector's elements, or returns v where the slice is nil.
func (x *avx) loadOr(name string, v float64) operand.Op {
	r := x.copy(x.k(v))
	x.unlessNil(name, func() { x.loadInto(name, r) })
	return r
}

// store writes this vector's elements.
func (x *avx) store(name string, v operand.Op) {
	m := x.at(name, x.size())
	switch {
	case x.nonTemporal:
		x.do("VMOVNTPS", v, m)
	case x.mask == nil:
		x.do("VMOVUPS", v, m)
	case x.wide:
		x.do("VMOVUPS", v, x.mask, m)
	default:
		x.do("VMASKMOVPS", v, x.mask, m)
	}
}

func (x *avx) loadF16(name string) operand.Op { return x.op("VCVTPH2PS", x.at(name, 2)) }

func (x *avx) storeF16(name string, v operand.Op) {
	x.do("VCVTPS2PH", operand.Imm(0), v, x.at(name, 2))
}

func (x *avx) loadBF16(name string) operand.Op {
	return x.shiftLeft(x.op("VPMOVZXWD", x.at(name, 2)), 16)
}

func (x *avx) storeLow(name string, v operand.Op) {
	if x.wide {
		x.do("VPMOVDW", v, x.at(name, 2))
		return
	}
	v = x.op("VPACKUSDW", v, v) // each half twice
	v = x.op("VPERMQ", operand.Imm(0x08), v)
	x.do("VMOVDQU", v.(reg.VecVirtual).AsX(), x.at(name, 2))
}

// loadBool reads a byte of 0 or 1 for each lane, as the result of a comparison.
func (x *avx) loadBool(name string) operand.Op {
	v := x.op("VPMOVZXBD", x.at(name, 1))
	if x.wide {
		m := x.c.K()
		x.c.VPTESTMD(v, v, m)
		return m
	}
	return x.subInt(x.value(0), v)
}

// storeBool writes a byte of 0 or 1 for each lane of the result of a comparison.
func (x *avx) storeBool(name string, m operand.Op) {
	ones, at := x.copy(x.constant(twice(0x01010101))).(reg.VecVirtual).AsX(), x.at(name, 1)
	if x.wide {
		v := x.c.XMM()
		x.c.VMOVDQU8_Z(ones, m, v)
		if x.double {
			x.c.VMOVQ(v, at)
			return
		}
		x.c.VMOVDQU(v, at)
		return
	}
	if x.double {
		v, high := m.(reg.VecVirtual).AsX(), x.c.XMM()
		x.c.VEXTRACTI128(operand.Imm(1), m, high)
		x.c.VPACKSSDW(high, v, v)
		x.c.VPACKSSDW(v, v, v)
		x.c.VPACKSSWB(v, v, v)
		x.c.VPAND(ones, v, v)
		x.c.VMOVD(v, at)
		return
	}
	m = x.op("VPERMQ", operand.Imm(0x08), x.op("VPACKSSDW", m, m)) // each half is twice in its half of the register
	v := m.(reg.VecVirtual).AsX()
	x.c.VPACKSSWB(v, v, v)
	x.c.VPAND(ones, v, v)
	x.c.VMOVQ(v, at)
}

// storeTruth writes 1 for each unsigned byte of a that compares so with that of b, else 0. The predicate is 0 for equal, 4 for not
// equal, 1 for less, 2 for less or equal.
func (x *avx) storeTruth(name string, predicate uint64, a, b operand.Op) {
	ones := x.valueBits(0x01010101)
	if x.wide {
		m := x.c.K()
		x.c.VPCMPUB(operand.Imm(predicate), b, a, m)
		x.store(name, x.op("VMOVDQU8_Z", ones, m))
		return
	}
	switch predicate {
	case 1: // not b ≤ a
		a = x.op("VPMINUB", a, b)
	case 2:
		b = x.op("VPMINUB", a, b)
	}
	v := x.op("VPCMPEQB", a, b)
	if predicate == 0 || predicate == 2 {
		v = x.op("VPAND", ones, v)
	} else {
		v = x.op("VPANDN", ones, v)
	}
	x.store(name, v)
}

// unlessNil runs f where the slice of that name is not nil.
func (x *avx) unlessNil(name string, f func()) {
	*x.labels++
	skip := x.label(fmt.Sprintf("skip%d_", *x.labels))
	x.c.TESTQ(x.ptrs[name], x.ptrs[name])
	x.c.JE(operand.LabelRef(skip))
	x.optional = true
	f()
	x.optional = false
	x.c.Label(skip)
}

// Arithmetic. b may be a constant.
func (x *avx) add(a, b operand.Op) operand.Op { return x.op("VADDPS", b, a) }
func (x *avx) sub(a, b operand.Op) operand.Op { return x.op("VSUBPS", b, a) }
func (x *avx) mul(a, b operand.Op) operand.Op { return x.op("VMULPS", b, a) }
func (x *avx) div(a, b operand.Op) operand.Op { return x.op("VDIVPS", b, a) }
func (x *avx) sqrt(a operand.Op) operand.Op   { return x.op("VSQRTPS", a) }

// Integers.
func (x *avx) addInt(a, b operand.Op) operand.Op { return x.op("VPADDD", b, a) }
func (x *avx) subInt(a, b operand.Op) operand.Op { return x.op("VPSUBD", b, a) }
func (x *avx) shiftLeft(a operand.Op, n int) operand.Op {
	return x.op("VPSLLD", operand.Imm(uint64(n)), a)
}
func (x *avx) shiftRight(a operand.Op, n int) operand.Op {
	return x.op("VPSRLD", operand.Imm(uint64(n)), a)
}
func (x *avx) shiftRightInt(a operand.Op, n int) operand.Op {
	return x.op("VPSRAD", operand.Imm(uint64(n)), a)
}
func (x *avx) toInt(a operand.Op) operand.Op   { return x.op("VCVTPS2DQ", a) }
func (x *avx) fromInt(a operand.Op) operand.Op { return x.op("VCVTDQ2PS", a) }

func (x *avx) roundEven(a operand.Op) operand.Op {
	if x.wide {
		return x.op("VRNDSCALEPS", operand.Imm(0), a)
	}
	return x.op("VROUNDPS", operand.Imm(0), a)
}

func (x *avx) scale(a, n operand.Op) operand.Op {
	if x.wide {
		return x.op("VSCALEFPS", n, a)
	}
	if x.double {
		return scaleDouble(x, a, n)
	}
	return scaleInTwo(x, a, n)
}

func (x *avx) fma(a, b, c operand.Op) operand.Op {
	r := x.copy(c)
	x.do("VFMADD231PS", b, a, r)
	return r
}

func (x *avx) fnma(a, b, c operand.Op) operand.Op {
	r := x.copy(c)
	x.do("VFNMADD231PS", b, a, r)
	return r
}

func (x *avx) fmaTo(acc, a, b operand.Op) { x.do("VFMADD231PS", a, b, acc) }
func (x *avx) addTo(acc, v operand.Op)    { x.do("VADDPS", v, acc, acc) }

func (x *avx) poly(a operand.Op, coefficients ...float64) operand.Op {
	last := len(coefficients) - 1
	p := x.copy(x.k(coefficients[last]))
	for i := last - 1; i >= 0; i-- {
		x.do("VFMADD213PS", x.k(coefficients[i]), a, p)
	}
	return p
}

func (x *avx) maxKeep(a, b operand.Op) operand.Op { return x.op("VMAXPS", b, a) }
func (x *avx) minKeep(a, b operand.Op) operand.Op { return x.op("VMINPS", b, a) }

func (x *avx) atLeast(low, a operand.Op) operand.Op { return x.maxKeep(low, a) }
func (x *avx) atMost(high, a operand.Op) operand.Op { return x.minKeep(high, a) }

// The two orders of the instruction differ for zeros of two signs, and for NaN. Where
// they do, less is -0 or makes a NaN of the NaN: -0 - (-0) is 0.
func (x *avx) maxSigned(a, b operand.Op) operand.Op {
	m, n := x.maxKeep(a, b), x.maxKeep(b, a)
	differ := x.xor(m, n)
	return x.sub(x.or(m, differ), differ)
}

// A NaN that other bits are added to stays one.
func (x *avx) minSigned(a, b operand.Op) operand.Op { return x.or(x.minKeep(a, b), x.minKeep(b, a)) }

func (x *avx) max(a, b operand.Op) operand.Op {
	return x.choose(x.unordered(a, a), a, x.maxKeep(a, b))
}

func (x *avx) maxNumber(a, b operand.Op) operand.Op { return x.maxKeep(b, a) }

// Bits. b may be a constant.
func (x *avx) and(a, b operand.Op) operand.Op { return x.op("VANDPS", b, a) }
func (x *avx) or(a, b operand.Op) operand.Op  { return x.op("VORPS", b, a) }
func (x *avx) xor(a, b operand.Op) operand.Op { return x.op("VXORPS", b, a) }
func (x *avx) abs(a operand.Op) operand.Op    { return x.and(a, x.bits(x.signBit()-1)) }
func (x *avx) sign(a operand.Op) operand.Op   { return x.and(a, x.bits(x.signBit())) }

func (x *avx) signBit() uint64 { return 1 << (8*x.size() - 1) }

// Comparisons, false for NaN except for unordered. b may be a constant.
func (x *avx) less(a, b operand.Op) operand.Op        { return x.compare(0x11, a, b) }
func (x *avx) lessOrEqual(a, b operand.Op) operand.Op { return x.compare(0x12, a, b) }
func (x *avx) greater(a, b operand.Op) operand.Op     { return x.compare(0x1e, a, b) }
func (x *avx) equal(a, b operand.Op) operand.Op       { return x.compare(0, a, b) }
func (x *avx) unordered(a, b operand.Op) operand.Op   { return x.compare(3, a, b) }

func (x *avx) compare(predicate int, a, b operand.Op) operand.Op {
	var m operand.Op = x.reg()
	if x.wide {
		m = x.c.K()
	}
	x.do("VCMPPS", operand.Imm(uint64(predicate)), b, a, m)
	return m
}

// choose returns yes where the comparison holds, else no. yes may be a constant.
func (x *avx) choose(m, yes, no operand.Op) operand.Op {
	dst := x.reg()
	if x.wide {
		x.do("VBLENDMPS", yes, no, m, dst)
	} else {
		x.do("VBLENDVPS", m, yes, no, dst)
	}
	return dst
}

func (x *avx) inMask(v operand.Op, start float64) operand.Op {
	switch {
	case x.mask == nil:
		return v
	case start != 0:
		return x.choose(x.mask, v, x.copy(x.k(start)))
	case x.wide:
		return x.op("VMOVAPS_Z", v, x.mask)
	default:
		return x.op("VANDPS", x.mask, v)
	}
}
