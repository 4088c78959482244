package main

import (
	"fmt"

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
	bPanel   = reg.RDI
	pairs    = reg.R8
	rowsLeft = reg.R9
	cAt      = reg.R10
	cStep    = reg.R11
	roomAt   = reg.R12
	aAt      = reg.RAX
	bAt      = reg.RBX
	left     = reg.RCX
	rowOfA   = reg.RDX // bytes of a row of a tile of A
	rowOfB   = reg.R13 // bytes of a row of both tiles of B, and of room
)

// amx emits the product of a block of A and a panel of B on tiles: 2 by 2 of C at a time. The tiles are
// configured and released in one call, so that no goroutine is moved to another thread between.
func amx(c *build.Context) {
	config := tileConfig(c)
	c.Function("tilesBF16AMX")
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr("func(rows, cols, k int, a, b *uint32, c *float32, ldc int, alpha, beta float32, room *float32)")
	c.Doc("tilesBF16AMX does C = alpha·A·B + beta·C for rows > 0 by 1 ≤ cols ≤ 32 elements of C and k > 0 pairs, a multiple of 16. " +
		"A is packed in strips of 32 rows, and each in blocks of 16 pairs; B is a panel of 32 columns. ldc is in bytes; " +
		"room is for 32 by 32 sums.")
	c.Pragma("noescape")

	c.LEAQ(config, aAt)
	instruction(c, "LDTILECFG (AX)", 0xc4, 0xe2, 0x78, 0x49, 0)
	c.Load(c.Param("a"), aStrip)
	c.Load(c.Param("b"), bPanel)
	c.Load(c.Param("k"), pairs)
	c.Load(c.Param("rows"), rowsLeft)
	c.Load(c.Param("c"), cAt)
	c.Load(c.Param("ldc"), cStep)
	c.Load(c.Param("room"), roomAt)
	c.MOVQ(operand.U32(64), rowOfA)
	c.MOVQ(operand.U32(128), rowOfB)
	first, second, alpha, beta := reg.K1, reg.K2, reg.Z30, reg.Z31
	c.Load(c.Param("cols"), left) // the masks of both vectors of a row of C
	c.MOVL(operand.U32(0xffffffff), aAt.As32())
	c.BZHIL(left.As32(), aAt.As32(), aAt.As32())
	c.KMOVW(aAt.As32(), first)
	c.SHRL(operand.Imm(tileLanes), aAt.As32())
	c.KMOVW(aAt.As32(), second)
	c.VBROADCASTSS(address(c, "alpha"), alpha)
	c.VBROADCASTSS(address(c, "beta"), beta)

	c.Label("strip")
	c.MOVQ(aStrip, aAt)
	c.MOVQ(bPanel, bAt)
	c.MOVQ(pairs, left)
	c.CMPQ(rowsLeft, operand.Imm(tileRows))
	c.JLE(operand.LabelRef("low"))
	c.CMPQ(address(c, "cols"), operand.Imm(tileLanes))
	c.JLE(operand.LabelRef("tiles2x1"))
	multiplyTiles(c, 2, 2)
	multiplyTiles(c, 2, 1)
	c.Label("low")
	c.CMPQ(address(c, "cols"), operand.Imm(tileLanes))
	c.JLE(operand.LabelRef("tiles1x1"))
	multiplyTiles(c, 1, 2)
	multiplyTiles(c, 1, 1)

	c.Label("update")
	c.MOVQ(operand.U32(2*tileRows), left)
	c.CMPQ(rowsLeft, left)
	c.CMOVQLT(rowsLeft, left)
	c.MOVQ(roomAt, aAt)
	c.MOVL(address(c, "beta"), bAt.As32())
	c.ADDL(bAt.As32(), bAt.As32()) // all but the sign
	c.Label("row")
	row := []struct {
		sum, old reg.VecPhysical
		mask     reg.Register
	}{{reg.Z0, reg.Z2, first}, {reg.Z1, reg.Z3, second}}
	for v, r := range row {
		c.VMULPS(operand.Mem{Base: aAt, Disp: 64 * v}, alpha, r.sum)
	}
	c.TESTL(bAt.As32(), bAt.As32())
	c.JE(operand.LabelRef("store"))
	for v, r := range row {
		c.VMOVUPS_Z(operand.Mem{Base: cAt, Disp: 64 * v}, r.mask, r.old)
		c.VFMADD231PS(beta, r.old, r.sum)
	}
	c.Label("store")
	for v, r := range row {
		c.VMOVUPS(r.sum, r.mask, operand.Mem{Base: cAt, Disp: 64 * v})
	}
	c.ADDQ(rowOfB, aAt)
	c.ADDQ(cStep, cAt)
	c.DECQ(left)
	c.JNE(operand.LabelRef("row"))
	c.MOVQ(pairs, aAt)
	c.SHLQ(operand.Imm(7), aAt) // 32 rows of 4 bytes
	c.ADDQ(aAt, aStrip)
	c.SUBQ(operand.Imm(2*tileRows), rowsLeft)
	c.JG(operand.LabelRef("strip"))
	instruction(c, "TILERELEASE", 0xc4, 0xe2, 0x78, 0x49, 0xc0)
	c.VZEROUPPER()
	c.RET()
}

// multiplyTiles writes the sums of rows by cols tiles of C to room: tile (r, v) of C in TMM2r+v, the tiles of A in
// TMM4 and TMM5, those of B in TMM6 and TMM7.
func multiplyTiles(c *build.Context, rows, cols int) {
	name := fmt.Sprintf("%dx%d", rows, cols)
	c.Label("tiles" + name)
	for r := range rows {
		for v := range cols {
			instruction(c, fmt.Sprintf("TILEZERO TMM%d", 2*r+v), tileZero(2*r+v)...)
		}
	}
	c.Label("loop" + name)
	for r := range rows {
		loadTile(c, aAt, rowOfA, r*tileBytes, 4+r)
	}
	for v := range cols {
		loadTile(c, bAt, rowOfB, v*64, 6+v)
		for r := range rows {
			instruction(c, fmt.Sprintf("TDPBF16PS TMM%d, TMM%d, TMM%d", 6+v, 4+r, 2*r+v), dotTiles(2*r+v, 4+r, 6+v)...)
		}
	}
	c.ADDQ(operand.U32(2*tileBytes), aAt)
	c.ADDQ(operand.U32(2*tileBytes), bAt)
	c.SUBQ(operand.Imm(tilePairs), left)
	c.JNE(operand.LabelRef("loop" + name))
	for r := range rows {
		for v := range cols {
			disp := 2*tileBytes*r + 64*v
			instruction(c, fmt.Sprintf("TILESTORED TMM%d, %d(R12)(R13*1)", 2*r+v, disp), tileMove(true, 2*r+v, roomAt, rowOfB, disp)...)
		}
	}
	c.JMP(operand.LabelRef("update"))
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
