package main

import (
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// An isa is a vector instruction set at one element type.
type isa struct {
	name  string // as the functions' names end
	wide  bool   // AVX-512, else AVX2
	bits  int    // of an element: 32 or 64
	lanes int    // elements of a register
	rows  int    // of a tile of C, chosen to fill the registers
	pairs bool   // an element of A and B is two of bfloat16, one of C a float32
	halfB bool   // an element of B is a bfloat16, one of A and C a float32
}

var isas = []isa{
	{"AVX512", true, 32, 16, 14, false, false},
	{"AVX512", true, 64, 8, 14, false, false},
	{"AVX2", false, 32, 8, 6, false, false},
	{"AVX2", false, 64, 4, 6, false, false},
	{"AVX512", true, 32, 16, 14, true, false},
	{"AVX512", true, 32, 16, 14, false, true},
}

// size is the bytes of an element.
func (s isa) size() int { return s.bits / 8 }

// sizeB is the bytes of an element of B.
func (s isa) sizeB() int {
	if s.halfB {
		return 2
	}
	return s.size()
}

// typ is the Go name of the element type of C, factor that of A, factorB that of B, and mark a
// short form in names.
func (s isa) typ() string {
	if s.bits == 32 {
		return "float32"
	}
	return "float64"
}

func (s isa) factor() string {
	if s.pairs {
		return "uint32"
	}
	return s.typ()
}

func (s isa) factorB() string {
	if s.halfB {
		return "uint16"
	}
	return s.factor()
}

func (s isa) mark() string {
	switch {
	case s.pairs:
		return "BF16"
	case s.halfB:
		return "F32BF16"
	case s.bits == 32:
		return "F32"
	}
	return "F64"
}

// vec returns vector register i.
func (s isa) vec(i int) reg.VecPhysical {
	if s.wide {
		return zmm[i]
	}
	return ymm[i]
}

var zmm = []reg.VecPhysical{reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7, reg.Z8, reg.Z9, reg.Z10, reg.Z11, reg.Z12,
	reg.Z13, reg.Z14, reg.Z15, reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22,
	reg.Z23, reg.Z24, reg.Z25, reg.Z26, reg.Z27, reg.Z28, reg.Z29, reg.Z30, reg.Z31}

var ymm = []reg.VecPhysical{reg.Y0, reg.Y1, reg.Y2, reg.Y3, reg.Y4, reg.Y5, reg.Y6, reg.Y7, reg.Y8, reg.Y9, reg.Y10, reg.Y11, reg.Y12,
	reg.Y13, reg.Y14, reg.Y15}

// pick calls single or double, whichever is the element type's.
func (s isa) pick(single, double func(...operand.Op)) func(...operand.Op) {
	if s.bits == 32 {
		return single
	}
	return double
}

func (s isa) fma(c *build.Context, a, b, acc operand.Op) {
	s.pick(c.VFMADD231PS, c.VFMADD231PD)(a, b, acc)
}

// multiply adds the product of an element of A and those of B to a row of C.
func (s isa) multiply(c *build.Context, a, b, acc reg.VecPhysical) {
	if s.pairs {
		dotPairs(c, a, b, acc)
	} else {
		s.fma(c, a, b, acc)
	}
}

// dotPairs is VDPBF16PS b, a, acc, which neither avo nor the assembler knows: to each
// float32 of acc it adds the products of a pair of bfloat16 in a and one in b. The bytes
// are EVEX.512.F3.0F38.W0 52 /r.
func dotPairs(c *build.Context, a, b, acc reg.VecPhysical) {
	bit := func(r reg.VecPhysical, n int) uint32 { return uint32(r.PhysicalIndex()) >> n & 1 }
	low := func(r reg.VecPhysical, n int) uint32 { return uint32(r.PhysicalIndex()) & (1<<n - 1) }
	p0 := (bit(acc, 3)<<7 | bit(b, 4)<<6 | bit(b, 3)<<5 | bit(acc, 4)<<4) ^ 0xf0 | 2
	p1 := low(a, 4)<<3 ^ 0x78 | 4 | 2
	p2 := bit(a, 4)<<3 ^ 8 | 2<<5
	c.Instruction(&ir.Instruction{Opcode: "LONG", Operands: []operand.Op{operand.U32(0x62 | p0<<8 | p1<<16 | p2<<24)}})
	c.Instruction(&ir.Instruction{Opcode: "WORD", Operands: []operand.Op{operand.U16(0x52 | (0xc0|low(acc, 3)<<3|low(b, 3))<<8)}})
}

func (s isa) mul(c *build.Context, a, b, dst operand.Op) {
	s.pick(c.VMULPS, c.VMULPD)(a, b, dst)
}

func (s isa) add(c *build.Context, a, b, dst operand.Op) {
	s.pick(c.VADDPS, c.VADDPD)(a, b, dst)
}

func (s isa) move(c *build.Context, src, dst operand.Op) {
	if s.bits == 32 {
		c.VMOVUPS(src, dst)
	} else {
		c.VMOVUPD(src, dst)
	}
}

// zero clears a vector register.
func (s isa) zero(c *build.Context, v operand.Op) {
	if s.wide {
		c.VPXORD(v, v, v)
	} else {
		c.VPXOR(v, v, v)
	}
}

// broadcast fills dst with the element at m.
func (s isa) broadcast(c *build.Context, m, dst operand.Op) {
	if s.bits == 32 {
		c.VBROADCASTSS(m, dst)
	} else {
		c.VBROADCASTSD(m, dst)
	}
}
