package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// packs emits what copies pieces of matrices into the panels that tiles reads.
func packs(c *build.Context) {
	copyRows(c)
	transpose(c)
}

// copyRows moves 32-bit elements, up to two vectors a row.
func copyRows(c *build.Context) {
	c.Function("copyRowsAVX512")
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr("func(dst *float32, dstStride int, src *float32, srcStride, cols, rows int)")
	c.Doc("copyRowsAVX512 copies rows > 0 rows of 1 ≤ cols ≤ 32 elements; strides are in bytes.")
	c.Pragma("noescape")
	dst, dstStride, src, srcStride, cols, rows := reg.RDI, reg.R8, reg.RSI, reg.R9, reg.RDX, reg.RCX
	load(c, "dst", dst, "dstStride", dstStride, "src", src, "srcStride", srcStride, "cols", cols, "rows", rows)
	lowMask(c, cols, reg.K1)
	c.XORL(reg.EAX, reg.EAX)
	c.SUBQ(operand.Imm(16), cols)
	c.CMOVQLT(reg.RAX, cols)
	lowMask(c, cols, reg.K2)
	c.Label("row")
	c.VMOVUPS_Z(operand.Mem{Base: src}, reg.K1, reg.Z0)
	c.VMOVUPS_Z(operand.Mem{Base: src, Disp: 64}, reg.K2, reg.Z1)
	c.VMOVUPS(reg.Z0, reg.K1, operand.Mem{Base: dst})
	c.VMOVUPS(reg.Z1, reg.K2, operand.Mem{Base: dst, Disp: 64})
	c.ADDQ(srcStride, src)
	c.ADDQ(dstStride, dst)
	c.DECQ(rows)
	c.JNE(operand.LabelRef("row"))
	c.VZEROUPPER()
	c.RET()
}

// transpose turns rows of 32-bit elements into columns, 16 by 16 at a time.
func transpose(c *build.Context) {
	c.Function("transposeAVX512")
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr("func(dst *float32, dstStride int, src *float32, srcStride, rows, cols int)")
	c.Doc("transposeAVX512 writes element (i, j) of src to (j, i) of dst, for 1 ≤ rows ≤ 16 rows and cols > 0 columns of src; strides are in bytes.")
	c.Pragma("noescape")
	dst, dstStride, src, srcStride, rows, cols := reg.RDI, reg.R8, reg.RSI, reg.R9, reg.RDX, reg.RCX
	row, step, none, ahead := reg.RAX, reg.RBX, reg.R10, reg.R11
	load(c, "dst", dst, "dstStride", dstStride, "src", src, "srcStride", srcStride, "rows", rows, "cols", cols)
	c.XORL(none.As32(), none.As32())
	c.MOVQ(srcStride, ahead) // 16 rows on is what the next call reads
	c.SHLQ(operand.Imm(4), ahead)
	lowMask(c, rows, reg.K1)
	c.Label("block")
	lowMask(c, cols, reg.K2)
	c.MOVQ(src, row)
	for r := range 16 { // missing rows read the last one again; the store leaves them out
		c.VMOVUPS_Z(operand.Mem{Base: row}, reg.K2, zmm[r])
		c.PREFETCHT0(operand.Mem{Base: row, Index: ahead, Scale: 1})
		if r < 15 {
			c.MOVQ(srcStride, step)
			c.CMPQ(rows, operand.Imm(uint64(r+1)))
			c.CMOVQLE(none, step)
			c.ADDQ(step, row)
		}
	}
	for i := 0; i < 16; i += 2 { // pairs of rows
		c.VUNPCKLPS(zmm[i+1], zmm[i], zmm[16+i])
		c.VUNPCKHPS(zmm[i+1], zmm[i], zmm[17+i])
	}
	for g := 0; g < 16; g += 4 { // fours of rows: register g+j has columns j, j+4, j+8, j+12
		for h := range 2 {
			c.VUNPCKLPD(zmm[18+g+h], zmm[16+g+h], zmm[g+2*h])
			c.VUNPCKHPD(zmm[18+g+h], zmm[16+g+h], zmm[g+2*h+1])
		}
	}
	even, odd := operand.Imm(0x88), operand.Imm(0xdd)
	for j := range 4 { // quarters to their columns
		c.VSHUFF32X4(even, zmm[4+j], zmm[j], zmm[16])
		c.VSHUFF32X4(odd, zmm[4+j], zmm[j], zmm[17])
		c.VSHUFF32X4(even, zmm[12+j], zmm[8+j], zmm[18])
		c.VSHUFF32X4(odd, zmm[12+j], zmm[8+j], zmm[19])
		c.VSHUFF32X4(even, zmm[18], zmm[16], zmm[j])
		c.VSHUFF32X4(odd, zmm[18], zmm[16], zmm[8+j])
		c.VSHUFF32X4(even, zmm[19], zmm[17], zmm[4+j])
		c.VSHUFF32X4(odd, zmm[19], zmm[17], zmm[12+j])
	}
	for j := range 16 {
		c.VMOVUPS(zmm[j], reg.K1, operand.Mem{Base: dst})
		c.ADDQ(dstStride, dst)
		c.DECQ(cols)
		c.JE(operand.LabelRef("done"))
	}
	c.ADDQ(operand.Imm(64), src)
	c.JMP(operand.LabelRef("block"))
	c.Label("done")
	c.VZEROUPPER()
	c.RET()
}

// load loads parameters, given by name, into registers.
func load(c *build.Context, pairs ...any) {
	for i := 0; i < len(pairs); i += 2 {
		c.Load(c.Param(pairs[i].(string)), pairs[i+1].(reg.Register))
	}
}

// lowMask sets the lowest min(n, 16) bits of a mask and clears the others.
func lowMask(c *build.Context, n reg.GPPhysical, k reg.OpmaskPhysical) {
	wide := reg.R15
	c.MOVQ(operand.U32(16), wide)
	c.CMPQ(n, wide)
	c.CMOVQLT(n, wide)
	c.MOVL(operand.U32(0xffffffff), reg.R13L)
	c.BZHIL(wide.As32(), reg.R13L, reg.R13L)
	c.KMOVW(reg.R13L, k)
}
