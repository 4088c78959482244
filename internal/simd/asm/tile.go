package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tiles emits the micro-kernels: one tile of C, up to s.rows rows by two vectors
// of columns, held in registers while k runs.
//
// For each row the element of A is broadcast and multiplied with the two vectors
// of B. The strides of A and of B are arguments, so that the same code reads
// packed panels and matrices as they lie. Every number of rows has its own
// section, in which the registers are named; columns that are missing from the
// last vector are masked.
func tiles(c *build.Context) {
	lanes := map[int]operand.Mem{}
	for bits := 32; bits <= 64; bits *= 2 {
		lanes[bits] = laneNumbers(c, bits)
	}
	halves := upperHalves(c)
	for _, s := range isas {
		tile(c, s, lanes[s.bits], halves)
	}
}

// lanesOf is what laneNumbers emitted before.
func lanesOf(bits int) operand.Mem {
	return operand.NewDataAddr(operand.NewStaticSymbol(fmt.Sprintf("lanes%d", bits)), 0)
}

// laneNumbers emits 0, 1, … as the elements of a vector of AVX2, of a number of bits each.
func laneNumbers(c *build.Context, bits int) operand.Mem {
	m := c.StaticGlobal(fmt.Sprintf("lanes%d", bits))
	c.DataAttributes(attr.RODATA | attr.NOPTR)
	for i := range 256 / bits {
		c.AddDatum(i*bits/8, number(bits, i))
	}
	return m
}

// number is i as an integer constant.
func number(bits, i int) operand.Constant {
	if bits == 32 {
		return operand.U32(uint32(i))
	}
	return operand.U64(uint64(i))
}

// prefetchFrom is the k from which the loop is long enough to fetch C meanwhile.
const prefetchFrom = 48

// General registers of a tile. Row r of A is at base[r/5] + (r mod 5)·rsa.
var (
	base    = []reg.GPPhysical{reg.RAX, reg.RBX, reg.RCX}
	rsa     = reg.RDX
	rsa3    = reg.RSI
	csa     = reg.RDI
	bRow    = reg.R8
	rsb     = reg.R9
	counter = reg.R10
	cRow    = reg.R11
	ldc     = reg.R12
	scratch = reg.R13
	ahead   = reg.R15
	coming  = reg.R14
)

// rowA is where the element of row r is.
func rowA(r int) operand.Mem {
	m := operand.Mem{Base: base[r/5]}
	switch r % 5 {
	case 1, 2, 4:
		m.Index, m.Scale = rsa, uint8(r%5)
	case 3:
		m.Index, m.Scale = rsa3, 1
	}
	return m
}

func tile(c *build.Context, s isa, lanes, halves operand.Mem) {
	name := "tile" + s.mark() + s.name
	c.Function(name)
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr(fmt.Sprintf("func(rows, cols, k int, a *%s, rsa, csa int, b *%s, rsb int, c *%[3]s, ldc int, alpha, beta %[3]s, "+
		"first, next *%[3]s, lds, step, n, half int%[4]s%[5]s)", s.factor(), s.factorB(), s.typ(), s.narrowParam(), s.flushParam()))
	k := "k > 0"
	if s.pairs {
		k += " pairs"
	}
	c.Doc(fmt.Sprintf("%s does C = alpha·A·B + beta·C for 1 ≤ rows ≤ %d by 1 ≤ cols ≤ %d elements of C and %s; strides are in bytes. "+
		"To alpha·A·B it first adds n tiles of sums: one at first, one at next, and more, each step bytes after the one before. "+
		"If half > 0, the sum of so many k is written to first, and the tile's own begins after it.%s%s",
		name, s.rows, 2*s.lanes, k, s.narrowDoc(), s.flushDoc()))
	c.Pragma("noescape")
	var modes controls
	if s.flushes() {
		modes = controlWords(c, scratch.As32())
	}

	c.Load(c.Param("a"), base[0])
	c.Load(c.Param("rsa"), rsa)
	c.Load(c.Param("csa"), csa)
	c.Load(c.Param("b"), bRow)
	c.Load(c.Param("rsb"), rsb)
	c.Load(c.Param("half"), counter)
	c.TESTQ(counter, counter)
	c.JNE(operand.LabelRef("halved"))
	c.Load(c.Param("k"), counter)
	c.Label("halved")
	c.Load(c.Param("c"), cRow)
	if s.narrows() {
		c.Load(c.Param("narrow"), scratch)
		c.TESTQ(scratch, scratch)
		c.CMOVQNE(scratch, cRow)
	}
	c.Load(c.Param("ldc"), ldc)
	c.LEAQ(operand.Mem{Base: rsa, Index: rsa, Scale: 2}, rsa3)
	c.LEAQ(operand.Mem{Base: rsa, Index: rsa, Scale: 4}, scratch)
	c.LEAQ(operand.Mem{Base: base[0], Index: scratch, Scale: 1}, base[1])
	if s.rows > 10 {
		c.LEAQ(operand.Mem{Base: base[0], Index: scratch, Scale: 2}, base[2])
	}

	c.Load(c.Param("cols"), scratch)
	c.Load(c.Param("rows"), ahead)
	c.CMPQ(scratch, operand.Imm(uint64(2*s.lanes)))
	c.JNE(operand.LabelRef("part"))
	c.CMPQ(ahead, operand.Imm(uint64(s.rows)))
	c.JNE(operand.LabelRef("part"))
	section(c, s, modes, s.rows, 2, true, halves)
	c.Label("part")
	c.CMPQ(scratch, operand.Imm(uint64(s.lanes)))
	c.JLE(operand.LabelRef("narrow"))
	c.SUBQ(operand.Imm(uint64(s.lanes)), scratch)
	s.mask(c, scratch, lanes)
	c.Load(c.Param("rows"), scratch)
	for vectors := 2; vectors >= 1; vectors-- {
		if vectors == 1 {
			c.Label("narrow")
			s.mask(c, scratch, lanes)
			c.Load(c.Param("rows"), scratch)
		}
		for r := s.rows; r > 1; r-- {
			c.CMPQ(scratch, operand.Imm(uint64(r)))
			c.JE(operand.LabelRef(fmt.Sprintf("rows%dx%d", r, vectors)))
		}
		section(c, s, modes, 1, vectors, false, halves)
		for r := s.rows; r > 1; r-- {
			c.Label(fmt.Sprintf("rows%dx%d", r, vectors))
			section(c, s, modes, r, vectors, false, halves)
		}
	}
}

// mask makes the mask of the last vector from the columns it has, in n: K1, or
// the last vector register of AVX2.
func (s isa) mask(c *build.Context, n reg.GPPhysical, lanes operand.Mem) {
	if s.wide {
		c.MOVL(operand.U32(0xffffffff), reg.R15L)
		c.BZHIL(n.As32(), reg.R15L, reg.R15L)
		c.KMOVW(reg.R15L, reg.K1)
		return
	}
	maskBelow(c, n, s.bits, lanes)
}

// maskBelow makes the mask of the first n elements of a vector of AVX2 in its last register; lanes are laneNumbers of as many bits.
func maskBelow(c *build.Context, n reg.GPPhysical, bits int, lanes operand.Mem) {
	m := reg.Y15
	c.VMOVQ(n, reg.X15)
	if bits == 32 {
		c.VPBROADCASTD(reg.X15, m)
		c.VPCMPGTD(lanes, m, m)
	} else {
		c.VPBROADCASTQ(reg.X15, m)
		c.VPCMPGTQ(lanes, m, m)
	}
}

// section is the loop over k and the update of C for one number of rows and of
// vectors. In a whole tile no column is missing: a masked store takes long on some processors.
func section(c *build.Context, s isa, modes controls, rows, vectors int, whole bool, halves operand.Mem) {
	label := func(what string) string { return fmt.Sprintf("%s%dx%d", what, rows, vectors) }
	last := vectors - 1
	if whole {
		label = func(what string) string { return what + "Whole" }
		last = vectors
	}
	acc := func(r, v int) reg.VecPhysical { return s.vec(r*vectors + v) }
	bv := func(v int) reg.VecPhysical { return s.vec(rows*vectors + v) }
	element := s.vec(rows*vectors + vectors)

	for r := range rows {
		for v := range vectors {
			s.zero(c, acc(r, v))
		}
	}
	step := func() {
		for v := range vectors {
			s.loadB(c, v == last, operand.Mem{Base: bRow, Disp: v * s.lanes * s.sizeB()}, bv(v))
		}
		if s.wide { // what comes eight steps later, for B's panel may not fit the first cache
			for v := range vectors {
				c.PREFETCHT0(operand.Mem{Base: bRow, Index: rsb, Scale: 8, Disp: v * s.lanes * s.sizeB()})
			}
			c.PREFETCHT0(operand.Mem{Base: base[0], Index: csa, Scale: 8})
		}
		for r := range rows {
			s.broadcast(c, rowA(r), element)
			for v := range vectors {
				s.multiply(c, element, bv(v), acc(r, v))
			}
		}
		for i := 0; i*5 < rows; i++ {
			c.ADDQ(csa, base[i])
		}
		c.ADDQ(rsb, bRow)
	}
	s.mode(c, modes.flushing, label("flush"))
	c.CMPQ(counter, operand.Imm(prefetchFrom))
	c.JL(operand.LabelRef(label("loop")))
	c.MOVQ(cRow, scratch) // a row of C at each of the first steps
	c.SUBQ(operand.Imm(uint64(rows)), counter)
	c.MOVQ(operand.U32(uint32(rows)), ahead)
	c.Load(c.Param("next"), coming) // and one of what is added
	c.Label(label("first"))
	for v := range vectors {
		c.PREFETCHT0(operand.Mem{Base: scratch, Disp: v * s.lanes * s.size()})
	}
	c.PREFETCHT0(operand.Mem{Base: coming})
	c.ADDQ(ldc, scratch)
	c.ADDQ(address(c, "lds"), coming)
	step()
	c.DECQ(ahead)
	c.JNE(operand.LabelRef(label("first")))
	c.Label(label("loop"))
	if whole && !s.wide {
		packedSteps(c, s, rows, acc, bv, element)
		c.Label("stepwise")
		c.TESTQ(counter, counter)
		c.JE(operand.LabelRef("stepped"))
	}
	c.Label(label("step"))
	step()
	c.DECQ(counter)
	c.JNE(operand.LabelRef(label("step")))
	if whole && !s.wide {
		c.Label("stepped")
	}
	s.mode(c, modes.before, label("restore"))

	alpha, beta, old := s.vec(rows*vectors), s.vec(rows*vectors+1), s.vec(rows*vectors+2)
	sums, next, lds, between := base[0], base[1], rsa, csa // of A they are not used any more
	s.broadcast(c, address(c, "alpha"), alpha)
	for r := range rows {
		for v := range vectors {
			s.mul(c, alpha, acc(r, v), acc(r, v))
		}
	}
	c.CMPQ(address(c, "half"), operand.Imm(0))
	c.JE(operand.LabelRef(label("whole")))
	c.Load(c.Param("first"), scratch)
	c.Load(c.Param("lds"), ahead)
	for r := range rows {
		for v := range vectors { // the tile has room for vectors
			s.move(c, acc(r, v), operand.Mem{Base: scratch, Disp: v * s.lanes * s.size()})
			s.zero(c, acc(r, v))
		}
		if r < rows-1 {
			c.ADDQ(ahead, scratch)
		}
	}
	c.Load(c.Param("k"), counter)
	c.SUBQ(address(c, "half"), counter)
	c.MOVQ(operand.U32(0), address(c, "half"))
	s.mode(c, modes.flushing, label("again"))
	c.JMP(operand.LabelRef(label("loop")))

	c.Label(label("whole"))
	s.broadcast(c, address(c, "beta"), beta)
	c.Load(c.Param("n"), counter)
	c.TESTQ(counter, counter)
	c.JE(operand.LabelRef(label("added")))
	c.Load(c.Param("first"), sums)
	c.Load(c.Param("next"), next)
	c.Load(c.Param("lds"), lds)
	c.Load(c.Param("step"), between)
	c.Label(label("add"))
	c.MOVQ(sums, scratch)
	for r := range rows {
		for v := range vectors {
			s.loadLast(c, v == last, operand.Mem{Base: scratch, Disp: v * s.lanes * s.size()}, old)
			s.add(c, old, acc(r, v), acc(r, v))
		}
		if r < rows-1 {
			c.ADDQ(lds, scratch)
		}
	}
	c.MOVQ(next, sums)
	c.ADDQ(between, next)
	c.DECQ(counter)
	c.JNE(operand.LabelRef(label("add")))
	c.Label(label("added"))
	if s.bits == 32 {
		c.MOVL(address(c, "beta"), scratch.As32())
	} else {
		c.MOVQ(address(c, "beta"), scratch)
	}
	c.SHLQ(operand.Imm(uint64(65-s.bits)), scratch) // all but the sign
	c.JE(operand.LabelRef(label("store")))
	for r := range rows {
		for v := range vectors {
			m := operand.Mem{Base: cRow, Disp: v * s.lanes * s.size()}
			s.loadLast(c, v == last, m, old)
			s.fma(c, beta, old, acc(r, v))
			s.storeLast(c, v == last, acc(r, v), m)
		}
		if r < rows-1 {
			c.ADDQ(ldc, cRow)
		}
	}
	s.end(c)
	c.Label(label("store"))
	if s.narrows() {
		c.CMPQ(address(c, "narrow"), operand.Imm(0))
		c.JNE(operand.LabelRef(label("narrow")))
	}
	for r := range rows {
		for v := range vectors {
			s.storeLast(c, v == last, acc(r, v), operand.Mem{Base: cRow, Disp: v * s.lanes * s.size()})
		}
		if r < rows-1 {
			c.ADDQ(ldc, cRow)
		}
	}
	s.end(c)
	if s.narrows() {
		c.Label(label("narrow"))
		narrow(c, s, rows, vectors, whole, acc, halves)
		s.end(c)
	}
}

// unrolled is how many steps of packed panels the loop makes at once.
const unrolled = 4

// packedSteps makes the steps of a whole tile of AVX2, unrolled at a time, if both operands are packed; fewer are left. The places
// of packed elements are constants, so no address is computed: a step has 20 instructions instead of 25.
func packedSteps(c *build.Context, s isa, rows int, acc func(r, v int) reg.VecPhysical, bv func(v int) reg.VecPhysical,
	element reg.VecPhysical) {
	c.CMPQ(rsa, operand.Imm(uint64(s.size())))
	c.JNE(operand.LabelRef("stepwise"))
	c.CMPQ(csa, operand.Imm(uint64(rows*s.size())))
	c.JNE(operand.LabelRef("stepwise"))
	c.CMPQ(rsb, operand.U32(uint32(2*s.lanes*s.size())))
	c.JNE(operand.LabelRef("stepwise"))
	c.Label("packed")
	c.SUBQ(operand.Imm(unrolled), counter)
	c.JL(operand.LabelRef("unpacked"))
	for u := range unrolled {
		for v := range 2 {
			s.move(c, operand.Mem{Base: bRow, Disp: (2*u + v) * s.lanes * s.size()}, bv(v))
		}
		for r := range rows {
			s.broadcast(c, operand.Mem{Base: base[0], Disp: (u*rows + r) * s.size()}, element)
			for v := range 2 {
				s.multiply(c, element, bv(v), acc(r, v))
			}
		}
	}
	for i := 0; i*5 < rows; i++ {
		c.ADDQ(operand.U32(uint32(unrolled*rows*s.size())), base[i])
	}
	c.ADDQ(operand.U32(uint32(unrolled*2*s.lanes*s.size())), bRow)
	c.JMP(operand.LabelRef("packed"))
	c.Label("unpacked")
	c.ADDQ(operand.Imm(unrolled), counter)
}

// loadLast loads a vector, under the mask if it is the last one of its row.
func (s isa) loadLast(c *build.Context, last bool, m, v operand.Op) {
	switch {
	case !last:
		s.move(c, m, v)
	case s.wide && s.bits == 32:
		c.VMOVUPS_Z(m, reg.K1, v)
	case s.wide:
		c.VMOVUPD_Z(m, reg.K1, v)
	case s.bits == 32:
		c.VMASKMOVPS(m, reg.Y15, v)
	default:
		c.VMASKMOVPD(m, reg.Y15, v)
	}
}

// loadB is loadLast for a vector of B.
func (s isa) loadB(c *build.Context, last bool, m, v operand.Op) {
	switch {
	case !s.halfB:
		s.loadLast(c, last, m, v)
		return
	case last:
		c.VPMOVZXWD_Z(m, reg.K1, v)
	default:
		c.VPMOVZXWD(m, v)
	}
	c.VPSLLD(operand.Imm(16), v, v)
}

// storeLast is loadLast's counterpart.
func (s isa) storeLast(c *build.Context, last bool, v, m operand.Op) {
	switch {
	case !last:
		s.move(c, v, m)
	case s.wide:
		s.pick(c.VMOVUPS, c.VMOVUPD)(v, reg.K1, m)
	case s.bits == 32:
		c.VMASKMOVPS(v, reg.Y15, m)
	default:
		c.VMASKMOVPD(v, reg.Y15, m)
	}
}

// end leaves the function with the upper halves of the registers clean.
func (s isa) end(c *build.Context) {
	c.VZEROUPPER()
	c.RET()
}

// address is where a parameter lies.
func address(c *build.Context, param string) operand.Mem {
	p, err := c.Param(param).Resolve()
	if err != nil {
		panic(err)
	}
	return p.Addr
}
