package main

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A tile register of AMX is 16 rows of 64 bytes: 16 by 16 float32 of C, the pairs of bfloat16 of 16 rows of A
// and 16 k, or those of 16 k and 16 columns of B.
const (
	tileRows  = 16
	tileLanes = 16
	tilePairs = 16 // of k
	tileBytes = tileRows * 64
)

// General registers of tilesBF16AMX.
var (
	aStrip   = reg.RSI
	rowsOfA  = reg.RDI // bytes of 16 rows of A
	blockOfA = reg.R8  // bytes from a block of 16 pairs of A to the next
	colsLeft = reg.R9
	cAt      = reg.R10
	cStep    = reg.R11
	sumsAt   = reg.R12 // C, or room
	sumsStep = reg.R14
	aAt      = reg.RAX // also a row of C
	bAt      = reg.RBX // from panel to panel: they lie one behind the other
	left     = reg.RCX
	rowOfA   = reg.RDX // bytes of a row of A
	rowOfB   = reg.R13 // bytes of a row of both tiles of B, and of room
	lowAt    = reg.R15 // the lower tiles of the sums, or that of A
)

// amx emits the product of a strip of A and a block of B on tiles: 2 by 2 of C at a time. The tiles are
// configured and released in one call, so that no goroutine is moved to another thread between.
func amx(c *build.Context) {
	config, halves := tileConfig(c), upperHalves(c)
	c.Function("tilesBF16AMX")
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr("func(rows, cols, k int, a *uint32, row, block int, b *uint32, c *float32, ldc int, alpha, beta float32, " +
		"onto bool, narrow *uint16, room *float32)")
	c.Doc("tilesBF16AMX does C = alpha·A·B + beta·C for 1 ≤ rows ≤ 32 by cols > 0 elements of C and k > 0 pairs, a multiple of 16; " +
		"with onto, the sums begin with C. Rows of A and its blocks of 16 pairs begin row and block bytes apart, and it is read in whole " +
		"tiles of 16 rows. B is in panels of 32 columns, one behind the other. ldc is in bytes. If narrow is not nil, C is there, of " +
		"bfloat16, and only written: beta is 0. room is for 32 by 32 sums.")
	c.Pragma("noescape")

	c.LEAQ(config, aAt)
	instruction(c, "LDTILECFG (AX)", 0xc4, 0xe2, 0x78, 0x49, 0)
	c.Load(c.Param("a"), aStrip)
	c.Load(c.Param("row"), rowOfA)
	c.Load(c.Param("block"), blockOfA)
	c.Load(c.Param("b"), bAt)
	c.Load(c.Param("cols"), colsLeft)
	c.Load(c.Param("ldc"), cStep)
	c.MOVQ(rowOfA, rowsOfA)
	c.SHLQ(operand.Imm(4), rowsOfA)
	c.MOVQ(operand.U32(128), rowOfB)
	alpha, beta := reg.Z26, reg.Z27
	c.VBROADCASTSS(address(c, "alpha"), alpha)
	c.VBROADCASTSS(address(c, "beta"), beta)
	n := narrowing{reg.Z28, reg.Z29, reg.Z30, reg.Z31, reg.K4, reg.K5}
	n.begin(c, halves, aAt.As32())
	c.Load(c.Param("narrow"), cAt)
	c.TESTQ(cAt, cAt)
	c.JNE(operand.LabelRef("panel"))
	c.Load(c.Param("c"), cAt)

	first, second, both := reg.K1, reg.K2, reg.K3 // the masks of both vectors of a row of C
	row := []struct {
		sum, old reg.VecPhysical
		mask     reg.Register
	}{{reg.Z0, reg.Z2, first}, {reg.Z1, reg.Z3, second}}

	c.Label("panel")
	c.MOVQ(operand.U32(2*tileLanes), left)
	c.CMPQ(colsLeft, left)
	c.CMOVQLT(colsLeft, left)
	c.MOVL(operand.U32(0xffffffff), aAt.As32())
	c.BZHIL(left.As32(), aAt.As32(), aAt.As32())
	c.KMOVD(aAt.As32(), both)
	c.KMOVW(aAt.As32(), first)
	c.SHRL(operand.Imm(tileLanes), aAt.As32())
	c.KMOVW(aAt.As32(), second)
	// Whole tiles that are neither scaled nor rounded are made in C, others in room.
	c.MOVQ(cAt, sumsAt)
	c.MOVQ(cStep, sumsStep)
	c.CMPQ(address(c, "narrow"), operand.Imm(0))
	c.JNE(operand.LabelRef("inRoom"))
	c.CMPQ(address(c, "rows"), operand.Imm(2*tileRows))
	c.JLT(operand.LabelRef("inRoom"))
	c.CMPQ(colsLeft, operand.Imm(2*tileLanes))
	c.JLT(operand.LabelRef("inRoom"))
	c.CMPL(address(c, "alpha"), operand.U32(math.Float32bits(1)))
	c.JNE(operand.LabelRef("inRoom"))
	c.CMPL(address(c, "beta"), operand.Imm(0))
	c.JEQ(operand.LabelRef("begin"))
	c.Label("inRoom")
	c.Load(c.Param("room"), sumsAt)
	c.MOVQ(rowOfB, sumsStep)
	c.CMPB(address(c, "onto"), operand.Imm(0))
	c.JEQ(operand.LabelRef("begin"))
	c.Load(c.Param("rows"), left)
	c.MOVQ(sumsAt, lowAt)
	c.MOVQ(cAt, aAt)
	c.Label("copied")
	for v, r := range row {
		c.VMOVUPS_Z(operand.Mem{Base: aAt, Disp: 64 * v}, r.mask, r.old)
		c.VMOVUPS(r.old, operand.Mem{Base: lowAt, Disp: 64 * v})
	}
	c.ADDQ(cStep, aAt)
	c.ADDQ(rowOfB, lowAt)
	c.DECQ(left)
	c.JNE(operand.LabelRef("copied"))

	c.Label("begin")
	lowerSums(c)
	c.CMPB(address(c, "onto"), operand.Imm(0))
	c.JEQ(operand.LabelRef("zeros"))
	eachSum(func(tile int, at reg.GPPhysical, disp int) {
		loadTile(c, at, sumsStep, disp, tile)
	})
	c.JMP(operand.LabelRef("multiply"))
	c.Label("zeros")
	eachSum(func(tile int, _ reg.GPPhysical, _ int) {
		instruction(c, fmt.Sprintf("TILEZERO TMM%d", tile), tileZero(tile)...)
	})
	c.Label("multiply")
	c.MOVQ(aStrip, aAt)
	c.Load(c.Param("k"), left)
	c.CMPQ(address(c, "rows"), operand.Imm(tileRows))
	c.JLE(operand.LabelRef("low"))
	c.CMPQ(colsLeft, operand.Imm(tileLanes))
	c.JLE(operand.LabelRef("tiles2x1"))
	multiplyTiles(c, 2, 2)
	multiplyTiles(c, 2, 1)
	c.Label("low")
	c.CMPQ(colsLeft, operand.Imm(tileLanes))
	c.JLE(operand.LabelRef("tiles1x1"))
	multiplyTiles(c, 1, 2)
	multiplyTiles(c, 1, 1)

	c.Label("made")
	lowerSums(c)
	eachSum(func(tile int, at reg.GPPhysical, disp int) {
		instruction(c, fmt.Sprintf("TILESTORED TMM%d, %d(%s)(%s*1)", tile, disp, at.Asm(), sumsStep.Asm()),
			tileMove(true, tile, at, sumsStep, disp)...)
	})
	c.CMPQ(sumsAt, cAt)
	c.JEQ(operand.LabelRef("wide"))
	c.MOVQ(cAt, aAt)
	c.Load(c.Param("rows"), left)
	each := func(label string, do func()) { // row of room
		c.Label(label)
		for v, r := range row {
			c.VMULPS(operand.Mem{Base: sumsAt, Disp: 64 * v}, alpha, r.sum)
		}
		do()
		c.ADDQ(rowOfB, sumsAt)
		c.ADDQ(cStep, aAt)
		c.DECQ(left)
		c.JNE(operand.LabelRef(label))
	}
	store := func() {
		for v, r := range row {
			c.VMOVUPS(r.sum, r.mask, operand.Mem{Base: aAt, Disp: 64 * v})
		}
	}
	c.CMPQ(address(c, "narrow"), operand.Imm(0))
	c.JNE(operand.LabelRef("round"))
	c.CMPL(address(c, "beta"), operand.Imm(0))
	c.JEQ(operand.LabelRef("write"))
	each("update", func() {
		for v, r := range row {
			c.VMOVUPS_Z(operand.Mem{Base: aAt, Disp: 64 * v}, r.mask, r.old)
			c.VFMADD231PS(beta, r.old, r.sum)
		}
		store()
	})
	c.JMP(operand.LabelRef("wide"))
	each("write", store)
	c.Label("wide")
	c.ADDQ(operand.U32(2*tileLanes*4), cAt)
	c.JMP(operand.LabelRef("next"))
	each("round", func() {
		for _, r := range row {
			n.round(c, r.sum)
		}
		c.VPERMT2W(row[1].sum, n.upper, row[0].sum)
		c.VMOVDQU16(row[0].sum, both, operand.Mem{Base: aAt})
	})
	c.ADDQ(operand.Imm(2*tileLanes*2), cAt)

	c.Label("next")
	c.SUBQ(operand.Imm(2*tileLanes), colsLeft)
	c.JG(operand.LabelRef("panel"))
	instruction(c, "TILERELEASE", 0xc4, 0xe2, 0x78, 0x49, 0xc0)
	c.VZEROUPPER()
	c.RET()
}

// lowerSums sets lowAt to the lower tiles of the sums, 16 rows on.
func lowerSums(c *build.Context) {
	c.MOVQ(sumsStep, lowAt)
	c.SHLQ(operand.Imm(4), lowAt)
	c.ADDQ(sumsAt, lowAt)
}

// eachSum calls do for each tile of sums: tile (r, v) of C is TMM2r+v, and lies at disp from a register.
func eachSum(do func(tile int, at reg.GPPhysical, disp int)) {
	for r, at := range []reg.GPPhysical{sumsAt, lowAt} {
		for v := range 2 {
			do(2*r+v, at, 64*v)
		}
	}
}

// multiplyTiles adds the products of rows by cols tiles of C to the sums: the tiles of A in TMM4 and TMM5, those of B in TMM6 and
// TMM7.
func multiplyTiles(c *build.Context, rows, cols int) {
	name := fmt.Sprintf("%dx%d", rows, cols)
	c.Label("tiles" + name)
	if rows == 2 {
		c.LEAQ(operand.Mem{Base: aAt, Index: rowsOfA, Scale: 1}, lowAt)
	}
	c.Label("loop" + name)
	for r, at := range []reg.GPPhysical{aAt, lowAt}[:rows] {
		loadTile(c, at, rowOfA, 0, 4+r)
		c.ADDQ(blockOfA, at)
	}
	for v := range cols {
		loadTile(c, bAt, rowOfB, v*64, 6+v)
		for r := range rows {
			instruction(c, fmt.Sprintf("TDPBF16PS TMM%d, TMM%d, TMM%d", 6+v, 4+r, 2*r+v), dotTiles(2*r+v, 4+r, 6+v)...)
		}
	}
	c.ADDQ(operand.U32(2*tileBytes), bAt)
	c.SUBQ(operand.Imm(tilePairs), left)
	c.JNE(operand.LabelRef("loop" + name))
	c.JMP(operand.LabelRef("made"))
}

// loadTile loads a tile whose rows begin at base+disp and lie step bytes apart.
func loadTile(c *build.Context, base, step reg.GPPhysical, disp, tile int) {
	text := fmt.Sprintf("TILELOADD %d(%s)(%s*1), TMM%d", disp, base.Asm(), step.Asm(), tile)
	instruction(c, text, tileMove(false, tile, base, step, disp)...)
}

// tileConfig emits the configuration in which each tile has all rows and columns: palette 1, the bytes of a row of
// each tile from byte 16 on, its rows from byte 48 on.
func tileConfig(c *build.Context) operand.Mem {
	m := c.StaticGlobal("tileConfig")
	c.DataAttributes(attr.RODATA | attr.NOPTR)
	c.AddDatum(0, operand.U64(1))
	c.AddDatum(8, operand.U64(0))
	for at := 16; at < 32; at += 8 {
		c.AddDatum(at, operand.U64(0x0040004000400040))
	}
	c.AddDatum(32, operand.U64(0))
	c.AddDatum(40, operand.U64(0))
	c.AddDatum(48, operand.U64(0x1010101010101010))
	c.AddDatum(56, operand.U64(0))
	return m
}

// Neither avo nor Go's assembler knows AMX. These are the bytes of its instructions, from "Intel 64 and IA-32
// Architectures Software Developer's Manual", volume 2.

// tileZero is TILEZERO: VEX.128.F2.0F38.W0 49 /r.
func tileZero(tile int) []byte {
	return []byte{0xc4, 0xe2, 0x7b, 0x49, 0xc0 | byte(tile)<<3}
}

// dotTiles is TDPBF16PS, which adds the products of the pairs of a and b to c: VEX.128.F3.0F38.W0 5C /r.
func dotTiles(c, a, b int) []byte {
	return []byte{0xc4, 0xe2, 0x7a ^ byte(b)<<3, 0x5c, 0xc0 | byte(c)<<3 | byte(a)}
}

// tileMove is TILELOADD of rows that begin at base+disp and lie step bytes apart, or TILESTORED to them:
// VEX.128.F2.0F38.W0 4B /r, and F3.
func tileMove(store bool, tile int, base, step reg.GPPhysical, disp int) []byte {
	b, x, prefix := byte(base.PhysicalIndex()), byte(step.PhysicalIndex()), byte(0x7b)
	if store {
		prefix = 0x7a
	}
	return []byte{0xc4, 0xe2 ^ x>>3<<6 ^ b>>3<<5, prefix, 0x4b, 0x84 | byte(tile)<<3, x&7<<3 | b&7,
		byte(disp), byte(disp >> 8), byte(disp >> 16), byte(disp >> 24)}
}

// instruction emits an instruction by its bytes, and its text as a comment.
func instruction(c *build.Context, text string, code ...byte) {
	c.Comment(text)
	for len(code) > 0 {
		name, n := "BYTE", 1
		switch {
		case len(code) >= 4:
			name, n = "LONG", 4
		case len(code) >= 2:
			name, n = "WORD", 2
		}
		var v uint32
		for i := n - 1; i >= 0; i-- {
			v = v<<8 | uint32(code[i])
		}
		ops := []operand.Op{operand.U32(v)}
		switch n {
		case 1:
			ops[0] = operand.U8(v)
		case 2:
			ops[0] = operand.U16(v)
		}
		c.Instruction(&ir.Instruction{Opcode: name, Operands: ops})
		code = code[n:]
	}
}
