package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The product of few rows with a transposed matrix.
const (
	fewRows = 4  // of A and C, at most
	fewCols = 16 // of C, which are rows of W: two vectors
)

// few emits the product of few rows of A with the transposed W, which is read once where
// it lies: squares of four columns of eight rows are turned in registers, so that each
// lane of a sum is one row of W and is added up in the order of a tile.
func few(c *build.Context) {
	lanes := c.StaticGlobal("lanes4")
	c.DataAttributes(attr.RODATA | attr.NOPTR)
	for i := range 4 {
		c.AddDatum(i*4, operand.U32(uint32(i)))
	}
	fewOf(c, "fewF32AVX2", "float32", lanes)
	fewOf(c, "fewBF16AVX2", "uint16", lanes)
}

// fewOf is few for W of float32 or, as uint16, of bfloat16. Of that pairs of columns are turned and then taken apart.
func fewOf(c *build.Context, name, typ string, lanes operand.Mem) {
	c.Function(name)
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr("func(rows, k int, a *float32, rsa int, w *" + typ + ", ldw int, c *float32, ldc int, alpha, beta float32)")
	c.Doc(fmt.Sprintf("%s does C = alpha·A·Wᵀ + beta·C for 1 ≤ rows ≤ %d by %d elements of C and k > 0; strides are in bytes.", name, fewRows,
		fewCols))
	c.Pragma("noescape")
	half := typ == "uint16"
	load(c, "a", fewA, "rsa", fewRSA, "w", fewW[0], "ldw", fewLDW, "k", fewK)
	c.LEAQ(operand.Mem{Base: fewLDW, Index: fewLDW, Scale: 2}, fewLDW3)
	for i := 1; i < len(fewW); i++ { // four rows of W on
		c.LEAQ(operand.Mem{Base: fewW[i-1], Index: fewLDW, Scale: 4}, fewW[i])
	}
	c.LEAQ(operand.Mem{Base: fewRSA, Index: fewRSA, Scale: 2}, fewRSA3)
	c.MOVQ(fewLDW, fewNext)
	c.SHLQ(operand.Imm(4), fewNext)
	rows := reg.R15
	load(c, "rows", rows)
	for r := fewRows; r > 1; r-- {
		c.CMPQ(rows, operand.Imm(uint64(r)))
		c.JE(operand.LabelRef(fmt.Sprintf("rows%d", r)))
	}
	fewSection(c, 1, half, lanes)
	for r := fewRows; r > 1; r-- {
		c.Label(fmt.Sprintf("rows%d", r))
		fewSection(c, r, half, lanes)
	}
}

// General registers of few. W's rows are in fours.
var (
	fewW    = []reg.GPPhysical{reg.RAX, reg.RBX, reg.RCX, reg.RDX}
	fewLDW  = reg.RSI
	fewLDW3 = reg.RDI
	fewA    = reg.R8
	fewRSA  = reg.R9
	fewRSA3 = reg.R10
	fewK    = reg.R11
	fewNext = reg.R12 // bytes to the rows of W after these
	fewC    = reg.R13
)

// fewRow is row r < 4 from base on, at a byte of it.
func fewRow(base reg.GPPhysical, r int, step, step3 reg.GPPhysical, disp int) operand.Mem {
	m := operand.Mem{Base: base, Disp: disp}
	switch r {
	case 1, 2:
		m.Index, m.Scale = step, uint8(r)
	case 3:
		m.Index, m.Scale = step3, 1
	}
	return m
}

// fewSection is the loop over k and the update of C for one number of rows.
func fewSection(c *build.Context, rows int, half bool, lanes operand.Mem) {
	label := func(what string) string { return fmt.Sprintf("%s%d", what, rows) }
	acc := func(r, g int) reg.VecPhysical { return ymm[2*r+g] }
	for i := range 2 * rows {
		c.VPXOR(ymm[i], ymm[i], ymm[i])
	}
	v, spare, element, mask := ymm[8:12], ymm[12:14], ymm[14], reg.Y15
	xmm := []reg.VecPhysical{reg.X0, reg.X1, reg.X2, reg.X3, reg.X4, reg.X5, reg.X6, reg.X7, reg.X8, reg.X9, reg.X10, reg.X11, reg.X12}
	// add adds the column of eight rows of W in x, whose elements of A are at a byte of it.
	add := func(x reg.VecPhysical, disp, g int) {
		for r := range rows {
			c.VBROADCASTSS(fewRow(fewA, r, fewRSA, fewRSA3, disp), element)
			c.VFMADD231PS(element, x, acc(r, g))
		}
	}
	// columns adds n columns of the next four, those at a byte of each row; of bfloat16 all of the next eight.
	columns := func(disp, n int, masked bool) {
		for g := range 2 {
			low, high := fewW[2*g], fewW[2*g+1]
			for r := range 4 {
				from, to := fewRow(low, r, fewLDW, fewLDW3, disp), fewRow(high, r, fewLDW, fewLDW3, disp)
				if masked {
					c.VMASKMOVPS(from, mask.AsX(), xmm[8+r])
					c.VMASKMOVPS(to, mask.AsX(), xmm[12])
					c.VINSERTF128(operand.Imm(1), xmm[12], v[r], v[r])
				} else {
					c.VMOVUPS(from, xmm[8+r])
					c.VINSERTF128(operand.Imm(1), to, v[r], v[r])
				}
			}
			c.VUNPCKLPS(v[1], v[0], spare[0])
			c.VUNPCKHPS(v[1], v[0], spare[1])
			c.VUNPCKLPS(v[3], v[2], v[1])
			c.VUNPCKHPS(v[3], v[2], v[3])
			c.VUNPCKLPD(v[1], spare[0], v[0])
			c.VUNPCKHPD(v[1], spare[0], v[1])
			c.VUNPCKLPD(v[3], spare[1], v[2])
			c.VUNPCKHPD(v[3], spare[1], v[3])
			for p := range n {
				if !half {
					add(v[p], disp+4*p, g)
					continue
				}
				c.VPSLLD(operand.Imm(16), v[p], spare[0])
				add(spare[0], 2*disp+8*p, g)
				c.VPSRLD(operand.Imm(16), v[p], v[p])
				c.VPSLLD(operand.Imm(16), v[p], v[p])
				add(v[p], 2*disp+8*p+4, g)
			}
		}
	}
	// column adds the next column of bfloat16.
	column := func() {
		for g := range 2 {
			for i := range 2 {
				x := xmm[8+i]
				c.VPXOR(x, x, x)
				for r := range 4 {
					c.VPINSRW(operand.Imm(uint64(2*r+1)), fewRow(fewW[2*g+i], r, fewLDW, fewLDW3, 0), x, x)
				}
			}
			c.VINSERTF128(operand.Imm(1), xmm[9], v[0], v[0])
			add(v[0], 0, g)
		}
	}
	size, line := 4, uint64(16) // of an element of W; elements of a cache line
	if half {
		size, line = 2, 32
	}
	advance := func(elements uint64) {
		for _, w := range fewW {
			c.ADDQ(operand.Imm(uint64(size)*elements), w)
		}
		c.ADDQ(operand.U32(4*uint32(elements)), fewA)
	}

	c.SUBQ(operand.Imm(line), fewK)
	c.JL(operand.LabelRef(label("short")))
	c.Label(label("line"))
	for i, w := range fewW {
		c.LEAQ(operand.Mem{Base: w, Index: fewNext, Scale: 1}, fewC)
		for r := range 4 {
			c.PREFETCHT0(fewRow(fewC, r, fewLDW, fewLDW3, 0))
		}
		columns(16*i, 4, false)
	}
	advance(line)
	c.SUBQ(operand.Imm(line), fewK)
	c.JGE(operand.LabelRef(label("line")))
	c.Label(label("short"))
	c.ADDQ(operand.Imm(line-line/4), fewK)
	c.JL(operand.LabelRef(label("rest")))
	c.Label(label("quarter"))
	columns(0, 4, false)
	advance(line / 4)
	c.SUBQ(operand.Imm(line/4), fewK)
	c.JGE(operand.LabelRef(label("quarter")))
	c.Label(label("rest"))
	c.ADDQ(operand.Imm(line/4), fewK)
	c.JE(operand.LabelRef(label("done")))
	if half {
		c.Label(label("one"))
		column()
		advance(1)
		c.DECQ(fewK)
		c.JNE(operand.LabelRef(label("one")))
	} else {
		fewRest(c, label, lanes, columns)
	}

	c.Label(label("done"))
	ldc, bits, alpha, beta, old := fewRSA, reg.R15, v[0], v[1], v[2]
	load(c, "c", fewC, "ldc", ldc)
	c.VBROADCASTSS(address(c, "alpha"), alpha)
	c.VBROADCASTSS(address(c, "beta"), beta)
	c.MOVL(address(c, "beta"), bits.As32())
	c.SHLL(operand.Imm(1), bits.As32()) // all but the sign
	c.JE(operand.LabelRef(label("store")))
	for r := range rows {
		for g := range 2 {
			m := operand.Mem{Base: fewC, Disp: 32 * g}
			c.VMOVUPS(m, old)
			c.VMULPS(alpha, acc(r, g), acc(r, g))
			c.VFMADD231PS(beta, old, acc(r, g))
			c.VMOVUPS(acc(r, g), m)
		}
		c.ADDQ(ldc, fewC)
	}
	c.VZEROUPPER()
	c.RET()
	c.Label(label("store"))
	for r := range rows {
		for g := range 2 {
			c.VMULPS(alpha, acc(r, g), acc(r, g))
			c.VMOVUPS(acc(r, g), operand.Mem{Base: fewC, Disp: 32 * g})
		}
		c.ADDQ(ldc, fewC)
	}
	c.VZEROUPPER()
	c.RET()
}

// fewRest adds the last one to three columns of float32.
func fewRest(c *build.Context, label func(string) string, lanes operand.Mem, columns func(disp, n int, masked bool)) {
	mask := reg.Y15
	c.VMOVQ(fewK, mask.AsX())
	c.VPBROADCASTD(mask.AsX(), mask.AsX())
	c.VPCMPGTD(lanes, mask.AsX(), mask.AsX())
	for n := 3; n > 1; n-- {
		c.CMPQ(fewK, operand.Imm(uint64(n)))
		c.JE(operand.LabelRef(label(fmt.Sprintf("rest%dx", n))))
	}
	columns(0, 1, true)
	c.JMP(operand.LabelRef(label("done")))
	for n := 3; n > 1; n-- {
		c.Label(label(fmt.Sprintf("rest%dx", n)))
		columns(0, n, true)
		c.JMP(operand.LabelRef(label("done")))
	}
}
