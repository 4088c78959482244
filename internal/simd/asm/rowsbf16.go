package main

import (
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// fromRowsBF16 widens rows of bfloat16 of any length, their last vector under a mask. It prefetches the source as
// copyRows does.
func fromRowsBF16(c *build.Context, name string) {
	rowFunction(c, name, fromRowsSignature, "widens rows > 0 rows of n > 0 elements of bfloat16; steps are in bytes.")
	dst, dstStep, src, srcStep, n, rows := reg.RDI, reg.R8, reg.RSI, reg.R9, reg.RDX, reg.RCX
	ahead, later, whole, at := reg.R10, reg.R11, reg.R12, reg.RAX
	load(c, "dst", dst, "dstStep", dstStep, "src", src, "srcStep", srcStep, "srcAhead", ahead, "n", n, "rows", rows)
	const lanes = 16
	vector := func(disp int, k reg.OpmaskPhysical) { // of elements from at+disp on, all of them if k is K0
		from, to := operand.Mem{Base: src, Index: at, Scale: 2, Disp: 2 * disp}, operand.Mem{Base: dst, Index: at, Scale: 4, Disp: 4 * disp}
		v := zmm[disp/lanes]
		if k == reg.K0 {
			c.VPMOVZXWD(from, v)
			c.VPSLLD(operand.Imm(16), v, v)
			c.VMOVDQU32(v, to)
			return
		}
		c.VPMOVZXWD_Z(from, k, v)
		c.VPSLLD(operand.Imm(16), v, v)
		c.VMOVDQU32(v, k, to)
	}
	prefetch := func() { c.PREFETCHT0(operand.Mem{Base: later, Index: at, Scale: 2}) }
	c.LEAQ(operand.Mem{Base: n, Disp: -1}, whole)
	c.ANDQ(operand.I32(-2*lanes), whole) // elements before the last 1 to 32
	c.SUBQ(whole, n)
	lowMask(c, n, lanes, reg.K1)
	c.SUBQ(operand.Imm(lanes), n) // positive if the last vector is a second one
	c.JLE(operand.LabelRef("row"))
	lowMask(c, n, lanes, reg.K2)
	c.Label("row")
	c.LEAQ(operand.Mem{Base: src, Index: ahead, Scale: 1}, later)
	c.XORL(at.As32(), at.As32())
	c.TESTQ(whole, whole)
	c.JE(operand.LabelRef("last"))
	c.Label("vectors")
	prefetch()
	vector(0, reg.K0)
	vector(lanes, reg.K0)
	c.ADDQ(operand.Imm(2*lanes), at)
	c.CMPQ(at, whole)
	c.JLT(operand.LabelRef("vectors"))
	c.Label("last")
	prefetch()
	vector(0, reg.K1)
	c.TESTQ(n, n)
	c.JLE(operand.LabelRef("next"))
	vector(lanes, reg.K2)
	c.Label("next")
	nextRow(c, dst, dstStep, src, srcStep, rows, "row")
}

// toRowsBF16 rounds rows of up to two vectors to bfloat16. To each number it adds just under half of the last place
// kept, and a whole half if that place is odd; a NaN is made quiet instead, for it might overflow to infinity. The upper
// halves are what is left.
func toRowsBF16(c *build.Context, name string) {
	rowFunction(c, name, zipRowsSignature, "rounds rows > 0 rows of n elements to bfloat16, 0 < n ≤ 32; steps are in bytes.")
	dst, dstStep, src, srcStep, n, rows := reg.RDI, reg.R8, reg.RSI, reg.R9, reg.RDX, reg.RCX
	load(c, "dst", dst, "dstStep", dstStep, "src", src, "srcStep", srcStep, "n", n, "rows", rows)
	const lanes = 16
	upper := upperHalves(c)
	under, half, place, quiet, halves := zmm[27], zmm[28], zmm[29], zmm[30], zmm[31]
	c.VMOVDQU64(upper, halves)
	broadcast(c, reg.EAX, []bits32{{0x7fff, under}, {0x8000, half}, {0x10000, place}, {0x400000, quiet}})
	round := func(v, r reg.VecPhysical, odd, nan reg.OpmaskPhysical) {
		c.VPTESTMD(place, v, odd)
		c.VCMPPS(operand.Imm(3), v, v, nan)
		c.VPADDD(under, v, r)
		c.VPADDD(half, v, odd, r)
		c.VPORD(quiet, v, nan, r)
	}
	loop := func(label string, load func(), store func()) {
		c.Label(label)
		load()
		round(zmm[0], zmm[2], reg.K1, reg.K2)
		round(zmm[1], zmm[3], reg.K3, reg.K4)
		c.VPERMT2W(zmm[3], halves, zmm[2])
		store()
		nextRow(c, dst, dstStep, src, srcStep, rows, label)
	}
	first, second, to := operand.Mem{Base: src}, operand.Mem{Base: src, Disp: 4 * lanes}, operand.Mem{Base: dst}
	c.CMPQ(n, operand.Imm(2*lanes))
	c.JNE(operand.LabelRef("part"))
	loop("whole", func() {
		c.VMOVUPS(first, zmm[0])
		c.VMOVUPS(second, zmm[1])
	}, func() { c.VMOVDQU64(zmm[2], to) })
	c.Label("part")
	c.MOVL(operand.U32(0xffffffff), reg.EAX)
	c.BZHIL(n.As32(), reg.EAX, reg.EAX)
	c.KMOVD(reg.EAX, reg.K5)
	c.KMOVW(reg.EAX, reg.K6)
	c.SHRL(operand.Imm(lanes), reg.EAX)
	c.KMOVW(reg.EAX, reg.K7)
	loop("partRow", func() {
		c.VMOVUPS_Z(first, reg.K6, zmm[0])
		c.VMOVUPS_Z(second, reg.K7, zmm[1])
	}, func() { c.VMOVDQU16(zmm[2], reg.K5, to) })
}
