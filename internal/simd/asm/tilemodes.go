package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// upperHalves emits the numbers of the upper halves of elements of 32 bits in two vectors of AVX-512.
func upperHalves(c *build.Context) operand.Mem {
	m := c.StaticGlobal("upperHalves")
	c.DataAttributes(attr.RODATA | attr.NOPTR)
	for i := range 32 {
		c.AddDatum(2*i, operand.U16(uint16(2*i+1)))
	}
	return m
}

// bits32 is a vector of AVX-512 and what each of its elements of 32 bits is to be.
type bits32 struct {
	bits uint32
	v    reg.VecPhysical
}

// broadcast sets vectors, by way of a register.
func broadcast(c *build.Context, by operand.Op, all []bits32) {
	for _, k := range all {
		c.MOVL(operand.U32(k.bits), by)
		c.VPBROADCASTD(by, k.v)
	}
}

// narrows reports whether the tile can write C in bfloat16; then it has a parameter that says so.
func (s isa) narrows() bool { return s.wide && s.bits == 32 }

func (s isa) narrowParam() string {
	if s.narrows() {
		return ", narrow *uint16"
	}
	return ""
}

func (s isa) narrowDoc() string {
	if s.narrows() {
		return " If narrow is not nil, C is there, of bfloat16, and only written: beta is 0."
	}
	return ""
}

// flushes reports whether the tile can count numbers below 2⁻¹²⁶ as zeros while k runs; then it has a parameter that says so.
func (s isa) flushes() bool { return s.bits == 32 && !s.pairs && !s.halfB }

func (s isa) flushParam() string {
	if s.flushes() {
		return ", flush int"
	}
	return ""
}

func (s isa) flushDoc() string {
	if s.flushes() {
		return " If flush is not 0, sums and elements of A and B below 2⁻¹²⁶ are zeros."
	}
	return ""
}

// controls are where the words of MXCSR lie, as it was and with FTZ and DAZ.
type controls struct{ before, flushing operand.Mem }

// controlWords emits the reading of MXCSR, if the parameter flush is not 0.
func controlWords(c *build.Context, by reg.Register) controls {
	room := c.AllocLocal(8)
	modes := controls{room, room.Offset(4)}
	c.CMPQ(address(c, "flush"), operand.Imm(0))
	c.JE(operand.LabelRef("begin"))
	c.STMXCSR(modes.before)
	c.MOVL(modes.before, by)
	c.ORL(operand.U32(1<<15|1<<6), by)
	c.MOVL(by, modes.flushing)
	c.Label("begin")
	return modes
}

// mode sets MXCSR if the parameter flush is not 0.
func (s isa) mode(c *build.Context, word operand.Mem, label string) {
	if !s.flushes() {
		return
	}
	c.CMPQ(address(c, "flush"), operand.Imm(0))
	c.JE(operand.LabelRef(label))
	c.LDMXCSR(word)
	c.Label(label)
}

// A narrowing is the registers that round sums to bfloat16. To each it adds just under half of the last place kept, and the
// rest of the half if that place is odd; the upper half is what is left. A NaN stays as it is: an operation made it, so it
// is quiet and its upper half a NaN.
type narrowing struct {
	upper, under, one, place reg.VecPhysical
	number, odd              reg.OpmaskPhysical
}

// begin sets the vectors, by way of a register; halves are those of upperHalves.
func (n narrowing) begin(c *build.Context, halves operand.Mem, by operand.Op) {
	c.VMOVDQU64(halves, n.upper)
	broadcast(c, by, []bits32{{0x7fff, n.under}, {1, n.one}, {0x10000, n.place}})
}

// round makes the upper halves of sums what they are rounded to.
func (n narrowing) round(c *build.Context, sum reg.VecPhysical) {
	c.VCMPPS(operand.Imm(7), sum, sum, n.number)
	c.VPTESTMD(n.place, sum, n.number, n.odd)
	c.VPADDD(n.under, sum, n.number, sum)
	c.VPADDD(n.one, sum, n.odd, sum)
}

// narrow rounds a tile to bfloat16 and writes it to C.
func narrow(c *build.Context, s isa, rows, vectors int, whole bool, acc func(r, v int) reg.VecPhysical, halves operand.Mem) {
	n := narrowing{s.vec(28), s.vec(29), s.vec(30), s.vec(31), reg.K2, reg.K3}
	columns, bits := reg.K1, scratch.As32()
	n.begin(c, halves, bits)
	if vectors == 2 && !whole {
		columns = reg.K4
		c.KMOVW(reg.K1, bits)
		c.SHLL(operand.Imm(uint64(s.lanes)), bits)
		c.ORL(operand.U32(0xffff), bits)
		c.KMOVD(bits, columns)
	}
	for r := range rows {
		for v := range vectors {
			n.round(c, acc(r, v))
		}
		low, high, to := acc(r, 0), acc(r, vectors-1), operand.Mem{Base: cRow}
		c.VPERMT2W(high, n.upper, low)
		switch {
		case whole:
			c.VMOVDQU64(low, to)
		case vectors == 2:
			c.VMOVDQU16(low, columns, to)
		default:
			c.VMOVDQU16(low.AsY(), columns, to)
		}
		if r < rows-1 {
			c.ADDQ(ldc, cRow)
		}
	}
}
