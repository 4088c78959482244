package main

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// transpose turns rows into columns, as many at a time as a vector has elements.
func transpose(c *build.Context, name string, bytes int) {
	doc := fmt.Sprintf("writes element (i, j) of src to (j, i) of dst, for 1 ≤ rows ≤ %d rows and cols > 0 columns of src, "+
		"%d rows unless wide; steps are in bytes.", 64/bytes, 32/bytes)
	newTransposition(c, name, doc, bytes).emit()
}

// transposeBF16 is transpose of pairs of bfloat16, which it takes apart and widens.
func transposeBF16(c *build.Context, name string) {
	doc := "widens elements (i, 2·j) and (i, 2·j+1) of src, of bfloat16, to (2·j, i) and (2·j+1, i) of dst, for 1 ≤ rows ≤ 16 rows and " +
		"cols > 0 pairs of columns of src, 8 rows unless wide; steps are in bytes."
	p := newTransposition(c, name, doc, 4)
	p.apart = true
	p.emit()
}

// A transposition is where the parameters of transpose are.
type transposition struct {
	c                                      *build.Context
	bytes                                  int
	apart                                  bool // an element is two of bfloat16, which make two columns
	dst, dstStep, src, srcStep, rows, cols reg.GPPhysical
	none                                   reg.GPPhysical // 0
}

// newTransposition starts the function.
func newTransposition(c *build.Context, name, doc string, bytes int) transposition {
	rowFunction(c, name, transposeSignature, doc)
	return transposition{c: c, bytes: bytes, dst: reg.RDI, dstStep: reg.R8, src: reg.RSI, srcStep: reg.R9, rows: reg.RDX, cols: reg.RCX,
		none: reg.R10}
}

// emit writes the function.
func (p transposition) emit() {
	c := p.c
	load(c, "dst", p.dst, "dstStep", p.dstStep, "src", p.src, "srcStep", p.srcStep, "rows", p.rows, "cols", p.cols)
	c.XORL(p.none.As32(), p.none.As32())
	c.CMPB(address(c, "wide"), operand.Imm(0))
	c.JE(operand.LabelRef("narrow"))
	p.wide()
	c.Label("narrow")
	p.narrow()
}

// eachRow calls read with the address of each row of the block at src. Missing rows are the last one again.
func (p transposition) eachRow(lanes int, read func(r int, m operand.Mem)) {
	row, step := reg.RAX, reg.RBX
	p.c.MOVQ(p.src, row)
	for r := range lanes {
		read(r, operand.Mem{Base: row})
		if r < lanes-1 {
			p.c.MOVQ(p.srcStep, step)
			p.c.CMPQ(p.rows, operand.Imm(uint64(r+1)))
			p.c.CMOVQLE(p.none, step)
			p.c.ADDQ(step, row)
		}
	}
}

// wide is transpose with AVX-512.
func (p transposition) wide() {
	c, lanes, ahead := p.c, 64/p.bytes, reg.R11
	c.MOVQ(p.srcStep, ahead) // so many rows on is what the next call reads
	c.SHLQ(operand.Imm(uint64(bits.Len(uint(lanes))-1)), ahead)
	lowMask(c, p.rows, lanes, reg.K1)
	c.Label("block")
	lowMask(c, p.cols, lanes, reg.K2)
	p.eachRow(lanes, func(r int, m operand.Mem) {
		if p.bytes == 4 {
			c.VMOVUPS_Z(m, reg.K2, zmm[r])
		} else {
			c.VMOVUPD_Z(m, reg.K2, zmm[r])
		}
		m.Index, m.Scale = ahead, 1
		c.PREFETCHT0(m)
	})
	if p.bytes == 4 {
		turn32(c)
	} else {
		turn64(c)
	}
	store := func(v reg.VecPhysical) {
		if p.bytes == 4 {
			c.VMOVUPS(v, reg.K1, operand.Mem{Base: p.dst})
		} else {
			c.VMOVUPD(v, reg.K1, operand.Mem{Base: p.dst})
		}
		c.ADDQ(p.dstStep, p.dst)
	}
	high := zmm[31]
	if p.apart {
		c.VPTERNLOGD(operand.Imm(0xff), high, high, high)
		c.VPSLLD(operand.Imm(16), high, high)
	}
	for j := range lanes {
		if p.apart {
			c.VPSLLD(operand.Imm(16), zmm[j], zmm[16])
			store(zmm[16])
			c.VPANDD(high, zmm[j], zmm[j])
		}
		store(zmm[j])
		c.DECQ(p.cols)
		c.JE(operand.LabelRef("done"))
	}
	c.ADDQ(operand.Imm(64), p.src)
	c.JMP(operand.LabelRef("block"))
	c.Label("done")
	c.VZEROUPPER()
	c.RET()
}

// narrow is transpose with AVX2. Its stores have no mask, which some processors are slow at: a part of a
// column goes out as a half, a quarter and an eighth of a vector.
func (p transposition) narrow() {
	c, lanes, mask, all := p.c, 32/p.bytes, reg.Y15, lanesOf(8*p.bytes)
	c.Label("narrowBlock")
	maskBelow(c, p.cols, 8*p.bytes, all)
	p.eachRow(lanes, func(r int, m operand.Mem) {
		if p.bytes == 4 {
			c.VMASKMOVPS(m, mask, ymm[r])
		} else {
			c.VMASKMOVPD(m, mask, ymm[r])
		}
	})
	stored := 0
	store := func(v reg.VecPhysical) {
		full, part := fmt.Sprintf("full%d", stored), fmt.Sprintf("next%d", stored)
		c.CMPQ(p.rows, operand.Imm(uint64(lanes)))
		c.JE(operand.LabelRef(full))
		p.storePart(stored, v)
		c.JMP(operand.LabelRef(part))
		c.Label(full)
		c.VMOVUPS(v, operand.Mem{Base: p.dst})
		c.Label(part)
		c.ADDQ(p.dstStep, p.dst)
		stored++
	}
	for _, v := range turnNarrow(c, p.bytes) {
		if p.apart {
			c.VPSLLD(operand.Imm(16), v, mask)
			store(mask)
			c.VPSRLD(operand.Imm(16), v, v)
			c.VPSLLD(operand.Imm(16), v, v)
		}
		store(v)
		c.DECQ(p.cols)
		c.JE(operand.LabelRef("narrowDone"))
	}
	c.ADDQ(operand.Imm(32), p.src)
	c.JMP(operand.LabelRef("narrowBlock"))
	c.Label("narrowDone")
	c.VZEROUPPER()
	c.RET()
}

// storePart stores the first rows elements of v, which is overwritten, as column j.
func (p transposition) storePart(j int, v reg.VecPhysical) {
	c, to, x := p.c, reg.RAX, v.AsX()
	c.MOVQ(p.dst, to)
	for n := 16 / p.bytes; n > 0; n /= 2 { // elements
		next := fmt.Sprintf("part%dx%d", j, n)
		c.TESTQ(operand.U32(uint32(n)), p.rows)
		c.JE(operand.LabelRef(next))
		switch n * p.bytes {
		case 16:
			c.VMOVUPS(x, operand.Mem{Base: to})
			c.VEXTRACTF128(operand.Imm(1), v, x)
		case 8:
			c.VMOVLPS(x, operand.Mem{Base: to})
			c.VPERMILPD(operand.Imm(1), x, x)
		case 4:
			c.VMOVSS(x, operand.Mem{Base: to})
		}
		c.ADDQ(operand.Imm(uint64(n*p.bytes)), to)
		c.Label(next)
	}
}

// turnNarrow transposes the first registers of AVX2, as many as each has elements, and returns where the
// columns are. The last register is not used.
func turnNarrow(c *build.Context, bytes int) []reg.VecPhysical {
	at, free := slices.Clone(ymm[:32/bytes]), slices.Clone(ymm[32/bytes:15])
	cross := func(i, j int, low, high func(...operand.Op)) { // of registers i and j
		a, b, x, y := at[i], at[j], free[0], free[1]
		low(b, a, x)
		high(b, a, y)
		at[i], at[j], free = x, y, append(free[2:], a, b)
	}
	halves := func(which uint64) func(...operand.Op) {
		return func(ops ...operand.Op) { c.VPERM2F128(operand.Imm(which), ops[0], ops[1], ops[2]) }
	}
	const lows, highs = 0x20, 0x31
	if bytes == 8 {
		cross(0, 1, c.VUNPCKLPD, c.VUNPCKHPD)
		cross(2, 3, c.VUNPCKLPD, c.VUNPCKHPD)
		cross(0, 2, halves(lows), halves(highs))
		cross(1, 3, halves(lows), halves(highs))
		return at
	}
	for i := 0; i < 8; i += 2 { // pairs of rows
		cross(i, i+1, c.VUNPCKLPS, c.VUNPCKHPS)
	}
	for g := 0; g < 8; g += 4 { // fours of rows: columns 0 and 4, 2 and 6, 1 and 5, 3 and 7
		cross(g, g+2, c.VUNPCKLPD, c.VUNPCKHPD)
		cross(g+1, g+3, c.VUNPCKLPD, c.VUNPCKHPD)
	}
	for i := range 4 {
		cross(i, i+4, halves(lows), halves(highs))
	}
	return []reg.VecPhysical{at[0], at[2], at[1], at[3], at[4], at[6], at[5], at[7]}
}

// turn32 transposes 16 registers of 16 elements.
func turn32(c *build.Context) {
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
	for j := range 4 {
		r := [4]int{j, 4 + j, 8 + j, 12 + j}
		quarters(c, r, r)
	}
}

// turn64 transposes 8 registers of 8 elements.
func turn64(c *build.Context) {
	for p := range 4 { // pairs of rows: register 20+p has columns 0, 2, 4, 6, register 2p+1 the others
		c.VUNPCKLPD(zmm[2*p+1], zmm[2*p], zmm[20+p])
		c.VUNPCKHPD(zmm[2*p+1], zmm[2*p], zmm[2*p+1])
	}
	quarters(c, [4]int{20, 21, 22, 23}, [4]int{0, 2, 4, 6})
	quarters(c, [4]int{1, 3, 5, 7}, [4]int{1, 3, 5, 7})
}

// quarters transposes four registers of four quarters each; registers 16 to 19
// are lost.
func quarters(c *build.Context, from, to [4]int) {
	even, odd := operand.Imm(0x88), operand.Imm(0xdd)
	c.VSHUFF32X4(even, zmm[from[1]], zmm[from[0]], zmm[16])
	c.VSHUFF32X4(odd, zmm[from[1]], zmm[from[0]], zmm[17])
	c.VSHUFF32X4(even, zmm[from[3]], zmm[from[2]], zmm[18])
	c.VSHUFF32X4(odd, zmm[from[3]], zmm[from[2]], zmm[19])
	c.VSHUFF32X4(even, zmm[18], zmm[16], zmm[to[0]])
	c.VSHUFF32X4(even, zmm[19], zmm[17], zmm[to[1]])
	c.VSHUFF32X4(odd, zmm[18], zmm[16], zmm[to[2]])
	c.VSHUFF32X4(odd, zmm[19], zmm[17], zmm[to[3]])
}
