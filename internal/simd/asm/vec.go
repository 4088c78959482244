package main

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"sort"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A vec writes one vector's worth of a kernel: eight float32 with AVX2, sixteen
// with AVX-512. Its methods are the operations of a little vector language; each
// returns a new register. So one body serves both instruction sets, and gives
// the same bits in both.
type vec struct {
	c    *build.Context
	wide bool
	*pool

	ptrs        map[string]reg.GPVirtual
	scalars     map[string]operand.Op // a register, or with AVX2 the parameter in memory
	constants   map[uint32]operand.Op // registers, with AVX-512
	used        map[uint32]bool       // constants seen, in a rehearsal
	touched     []touch               // slices seen
	optional    bool                  // within unlessNil
	index       reg.GPVirtual         // elements done
	ahead       int                   // elements from index to this vector
	mask        operand.Op            // nil: all lanes
	nonTemporal bool                  // stores are non-temporal
	noPrefetch  bool                  // no prefetches
	labels      *int
}

// A pool is the constants of one file, each 32 bytes wide.
type pool struct {
	c      *build.Context
	tables map[uint32]operand.Mem
	lanes  operand.Mem // 0, 1, … 7
}

func newPool(c *build.Context) *pool {
	p := &pool{c: c, tables: map[uint32]operand.Mem{}}
	p.lanes = c.StaticGlobal("lanes")
	c.DataAttributes(attr.RODATA | attr.NOPTR)
	for i := range 8 {
		c.AddDatum(4*i, operand.U32(uint32(i)))
	}
	return p
}

// table returns where the constant with these bits lies.
func (p *pool) table(bits uint32) operand.Mem {
	m, ok := p.tables[bits]
	if !ok {
		m = p.c.StaticGlobal(fmt.Sprintf("x%08x", bits))
		p.c.DataAttributes(attr.RODATA | attr.NOPTR)
		for i := range 8 {
			p.c.AddDatum(4*i, operand.U32(bits))
		}
		p.tables[bits] = m
	}
	return m
}

// lane is how many elements a register holds.
func (x *vec) lane() int {
	if x.wide {
		return 16
	}
	return 8
}

// reg returns a new vector register.
func (x *vec) reg() reg.Register {
	if x.wide {
		return x.c.ZMM()
	}
	return x.c.YMM()
}

// do writes the instruction of that name, operands in Go's order.
func (x *vec) do(name string, ops ...operand.Op) {
	args := make([]reflect.Value, len(ops))
	for i, o := range ops {
		if k, ok := o.(constant); ok {
			o = k.Mem
			if x.wide && name == "VMOVUPS" {
				name = "VBROADCASTSS"
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

// op writes an instruction whose result goes to a new register.
func (x *vec) op(name string, ops ...operand.Op) operand.Op {
	dst := x.reg()
	x.do(name, append(ops, dst)...)
	return dst
}

// k is a constant: a register, or its place in memory. It may only stand where an
// instruction can read memory: as the second operand.
func (x *vec) k(v float64) operand.Op { return x.bits(math.Float32bits(float32(v))) }

func (x *vec) bits(b uint32) operand.Op {
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

// copy moves an operand into a register of its own, to be overwritten.
func (x *vec) copy(a operand.Op) operand.Op { return x.op("VMOVUPS", a) }

// s is the scalar parameter of that name, in a register.
func (x *vec) s(name string) operand.Op {
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

// touch notes that the body uses a slice, but for those that may be nil: they are
// parameters, used in each row again.
func (x *vec) touch(name string, size uint8) {
	if x.optional {
		return
	}
	if t := (touch{name, size}); !slices.Contains(x.touched, t) {
		x.touched = append(x.touched, t)
	}
}

// at is where this vector's elements of size bytes are, in the slice of that name.
func (x *vec) at(name string, size uint8) operand.Mem {
	p, ok := x.ptrs[name]
	if !ok {
		panic("no slice " + name)
	}
	x.touch(name, size)
	return operand.Mem{Base: p, Index: x.index, Scale: size, Disp: x.ahead * int(size)}
}

// load reads this vector's elements; lanes outside the mask are zero.
func (x *vec) load(name string) operand.Op {
	v := x.reg()
	x.loadInto(name, v)
	return v
}

func (x *vec) loadInto(name string, v operand.Op) {
	m := x.at(name, 4)
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
func (x *vec) loadOr(name string, v float64) operand.Op {
	r := x.copy(x.k(v))
	x.unlessNil(name, func() { x.loadInto(name, r) })
	return r
}

// store writes this vector's elements.
func (x *vec) store(name string, v operand.Op) {
	m := x.at(name, 4)
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

// unlessNil runs f where the slice of that name is not nil.
func (x *vec) unlessNil(name string, f func()) {
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
func (x *vec) add(a, b operand.Op) operand.Op { return x.op("VADDPS", b, a) }
func (x *vec) sub(a, b operand.Op) operand.Op { return x.op("VSUBPS", b, a) }
func (x *vec) mul(a, b operand.Op) operand.Op { return x.op("VMULPS", b, a) }
func (x *vec) div(a, b operand.Op) operand.Op { return x.op("VDIVPS", b, a) }
func (x *vec) sqrt(a operand.Op) operand.Op   { return x.op("VSQRTPS", a) }

// fma is a·b + c; fnma is c - a·b. b may be a constant.
func (x *vec) fma(a, b, c operand.Op) operand.Op {
	r := x.copy(c)
	x.do("VFMADD231PS", b, a, r)
	return r
}

func (x *vec) fnma(a, b, c operand.Op) operand.Op {
	r := x.copy(c)
	x.do("VFNMADD231PS", b, a, r)
	return r
}

// poly is the polynomial in a whose coefficients are given from the lowest, by
// Horner's rule.
func (x *vec) poly(a operand.Op, coefficients ...float64) operand.Op {
	last := len(coefficients) - 1
	p := x.copy(x.k(coefficients[last]))
	for i := last - 1; i >= 0; i-- {
		x.do("VFMADD213PS", x.k(coefficients[i]), a, p)
	}
	return p
}

// maxKeep and minKeep return b where either is NaN.
func (x *vec) maxKeep(a, b operand.Op) operand.Op { return x.op("VMAXPS", b, a) }
func (x *vec) minKeep(a, b operand.Op) operand.Op { return x.op("VMINPS", b, a) }

// Bits. b may be a constant.
func (x *vec) and(a, b operand.Op) operand.Op { return x.op("VANDPS", b, a) }
func (x *vec) or(a, b operand.Op) operand.Op  { return x.op("VORPS", b, a) }
func (x *vec) xor(a, b operand.Op) operand.Op { return x.op("VXORPS", b, a) }
func (x *vec) abs(a operand.Op) operand.Op    { return x.and(a, x.bits(0x7fffffff)) }
func (x *vec) sign(a operand.Op) operand.Op   { return x.and(a, x.bits(0x80000000)) }

// Comparisons, false for NaN but for unordered. b may be a constant.
func (x *vec) less(a, b operand.Op) operand.Op      { return x.compare(0x11, a, b) }
func (x *vec) atMost(a, b operand.Op) operand.Op    { return x.compare(0x12, a, b) }
func (x *vec) greater(a, b operand.Op) operand.Op   { return x.compare(0x1e, a, b) }
func (x *vec) equal(a, b operand.Op) operand.Op     { return x.compare(0, a, b) }
func (x *vec) unordered(a, b operand.Op) operand.Op { return x.compare(3, a, b) }

func (x *vec) compare(predicate int, a, b operand.Op) operand.Op {
	var m operand.Op = x.reg()
	if x.wide {
		m = x.c.K()
	}
	x.do("VCMPPS", operand.Imm(uint64(predicate)), b, a, m)
	return m
}

// choose returns yes where the comparison holds, else no. yes may be a constant.
func (x *vec) choose(m, yes, no operand.Op) operand.Op {
	dst := x.reg()
	if x.wide {
		x.do("VBLENDMPS", yes, no, m, dst)
	} else {
		x.do("VBLENDVPS", m, yes, no, dst)
	}
	return dst
}

// sorted returns the constants a rehearsal used, in order.
func sorted(used map[uint32]bool) []uint32 {
	var all []uint32
	for b := range used {
		all = append(all, b)
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	return all
}
