package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
)

// A tile of C with NEON is 12 rows by two vectors, in 24 of the 32 registers.
//
// A product is of a vector of B and one element of a register of A. Where the rows of a
// whole tile follow each other in A, as in packed panels, a vector of them is loaded at
// once; else each element on its own.
const (
	neonRows    = 12
	neonVectors = 2
	neonB       = neonRows * neonVectors // the first register of B
	neonA       = neonB + neonVectors    // of A
	neonSpare   = 32 - neonA             // registers of A
)

// A neonTile writes the tiles of one element type.
type neonTile struct {
	c    *build.Context
	bits int
}

// neonTiles returns the tiles of package gemm for arm64.
func neonTiles() (*ir.File, error) {
	c := build.NewContext()
	c.ConstraintExpr("arm64")
	for _, bits := range []int{32, 64} {
		neonTile{c, bits}.emit()
	}
	f, err := c.Result()
	if err != nil {
		return nil, err
	}
	return f, finish(f)
}

func (t neonTile) size() int  { return t.bits / 8 }
func (t neonTile) lanes() int { return 128 / t.bits }

// general is a general register. R16 to R18 and those from R27 on are not free.
func general(i int) text { return text(fmt.Sprintf("R%d", i)) }

// General registers. Row r of A is at R0 to R11; elements of it are tileOffset bytes on.
var (
	tileOffset, tileCSA, tileB, tileRSB   = general(12), general(13), general(14), general(15)
	tileK, tileC, tileLDC, tileRSA        = general(19), general(20), general(21), general(22)
	tileRowsLeft, tileColsLeft, tileThird = general(23), general(24), general(25)
)

// do writes an instruction whose operands are in Go's order, or those that arm64 knows.
func (t neonTile) do(name string, ops ...operand.Op) { instruct(t.c, name, nil, nil, ops...) }

// at is the memory at a register.
func at(base text, disp int) text { return text(fmt.Sprintf("%d(%s)", disp, base)) }

func (t neonTile) load(param string, to operand.Op) {
	name := "MOVD"
	if _, ok := to.(armVector); ok {
		name = t.element()
	}
	t.do(name, address(t.c, param), to)
}

// element is the instruction that moves one element.
func (t neonTile) element() string {
	if t.bits == 32 {
		return "FMOVS"
	}
	return "FMOVD"
}

func (t neonTile) emit() {
	c := t.c
	mark, typ := "F32", "float32"
	if t.bits == 64 {
		mark, typ = "F64", "float64"
	}
	name := "tile" + mark + "NEON"
	c.Function(name)
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr(fmt.Sprintf("func("+
		"rows, cols, k int, a *%[1]s, rsa, csa int, b *%[1]s, rsb int, c *%[1]s, ldc int, alpha, beta %[1]s, "+
		"first, next *%[1]s, lds, step, n int)", typ))
	c.Doc(fmt.Sprintf("%s does C = alpha·A·B + beta·C for 1 ≤ rows ≤ %d by cols elements of C and k > 0. cols is %d, %d or less than %d; "+
		"strides are in bytes. "+
		"To alpha·A·B it first adds n tiles of sums: one at first, one at next, and more, each step bytes after the one before.",
		name, neonRows, neonVectors*t.lanes(), t.lanes(), t.lanes()))
	c.Pragma("noescape")
	for _, p := range []struct {
		name string
		to   text
	}{{"a", general(0)}, {"rsa", tileRSA}, {"csa", tileCSA}, {"b", tileB}, {"rsb", tileRSB}, {"k", tileK}, {"c", tileC}, {"ldc", tileLDC},
		{"rows", tileRowsLeft}, {"cols", tileColsLeft}} {
		t.load(p.name, p.to)
	}
	for r := 1; r < neonRows; r++ { // of rows that are missing the addresses are not used
		t.do("ADD", tileRSA, general(r-1), general(r))
	}
	t.do("MOVD", text("ZR"), tileOffset)
	t.compare(tileColsLeft, t.lanes())
	branch(c, "BLT", "part")
	branch(c, "BEQ", "one")
	t.compare(tileRSA, t.size())
	branch(c, "BNE", "two")
	t.compare(tileRowsLeft, neonRows)
	branch(c, "BNE", "two")
	t.section(neonSection{label: "packed", rows: neonRows, vectors: neonVectors, packed: true})
	for _, s := range []neonSection{{label: "two", vectors: 2}, {label: "one", vectors: 1}, {label: "part", vectors: 1, part: true}} {
		c.Label(s.label)
		for r := neonRows; r > 1; r-- {
			t.compare(tileRowsLeft, r)
			branch(c, "BEQ", fmt.Sprintf("%s%d", s.label, r))
		}
		for r := 1; r <= neonRows; r++ {
			s.rows = r
			if r > 1 {
				c.Label(fmt.Sprintf("%s%d", s.label, r))
			}
			t.section(s)
		}
	}
}

func (t neonTile) compare(r text, n int) { t.do("CMP", operand.U64(n), r) }

// A neonSection is the loop over k and the update of C for one number of rows and of vectors.
type neonSection struct {
	label         string
	rows, vectors int
	packed        bool // the rows of A follow each other
	part          bool // the one vector has fewer elements than it may: as many as columns are left
}

func (t neonTile) section(s neonSection) {
	c := t.c
	label := func(what string) string { return fmt.Sprintf("%s_%s%d", what, s.label, s.rows) }
	acc := func(r, v int) armVector { return armVector(r*s.vectors + v) }
	arrangement := operand.U64(t.bits)
	for i := range s.rows * s.vectors {
		t.do("EOR", armVector(i), armVector(i), armVector(i))
	}
	c.Label(label("loop"))
	for v := range s.vectors {
		t.loadVector(s, label(fmt.Sprintf("b%d", v)), tileB, v, armVector(neonB+v))
	}
	if s.packed {
		for i := range neonRows / t.lanes() {
			t.do("FMOVQ", at(general(0), 16*i), text(fmt.Sprintf("F%d", neonA+i)))
		}
		t.do("ADD", tileCSA, general(0), general(0))
	}
	t.do("ADD", tileRSB, tileB, tileB)
	for r := range s.rows {
		a, index := armVector(neonA+r/t.lanes()), r%t.lanes()
		if !s.packed {
			a, index = armVector(neonA+r%neonSpare), 0
			t.do(t.element(), text(fmt.Sprintf("(%s)(%s)", general(r), tileOffset)), a)
		}
		for v := range s.vectors {
			t.do("FMLA element", acc(r, v), armVector(neonB+v), a, operand.U64(index), arrangement)
		}
	}
	if !s.packed {
		t.do("ADD", tileCSA, tileOffset, tileOffset)
	}
	t.do("SUBS", operand.U64(1), tileK, tileK)
	branch(c, "BNE", label("loop"))

	alpha, beta, old := armVector(neonA), armVector(neonA+1), armVector(neonA+2)
	t.load("alpha", alpha)
	for i := range s.rows * s.vectors {
		t.do("FMUL element", armVector(i), armVector(i), alpha, operand.U64(0), arrangement)
	}
	t.load("n", tileK)
	branch(c, "CBZ", label("added"), tileK)
	t.load("first", general(0)) // of A the registers are not used any more
	t.load("next", general(2))
	t.load("lds", tileRSA)
	t.load("step", tileCSA)
	c.Label(label("add"))
	t.do("MOVD", general(0), general(1))
	for r := range s.rows {
		for v := range s.vectors {
			t.loadVector(s, label(fmt.Sprintf("sum%d", r)), general(1), v, old)
			t.do("FADD", acc(r, v), acc(r, v), old, arrangement)
		}
		t.do("ADD", tileRSA, general(1), general(1))
	}
	t.do("MOVD", general(2), general(0))
	t.do("ADD", tileCSA, general(2), general(2))
	t.do("SUBS", operand.U64(1), tileK, tileK)
	branch(c, "BNE", label("add"))
	c.Label(label("added"))
	t.load("beta", beta)
	t.do("FMOVD", beta, tileK)
	t.do("LSL", operand.U64(65-t.bits), tileK, tileK) // all but the sign
	branch(c, "CBZ", label("store"), tileK)
	for _, adds := range []bool{true, false} {
		if !adds {
			c.Label(label("store"))
		}
		for r := range s.rows {
			for v := range s.vectors {
				part := label(fmt.Sprintf("c%v%d", adds, r))
				if adds {
					t.loadVector(s, part+"old", tileC, v, old)
					t.do("FMLA element", acc(r, v), old, beta, operand.U64(0), arrangement)
				}
				t.storeVector(s, part+"new", tileC, v, acc(r, v))
			}
			if r < s.rows-1 {
				t.do("ADD", tileLDC, tileC, tileC)
			}
		}
		end(c)
	}
}

// loadVector loads vector v of a row, or the part that it has; the other elements are zeros then.
func (t neonTile) loadVector(s neonSection, label string, base text, v int, to armVector) {
	f := text("F" + to.Asm()[1:])
	if !s.part {
		t.do("FMOVQ", at(base, 16*v), f)
		return
	}
	t.part(label, func() { t.do(t.element(), at(base, 0), f) }, func() { t.do("FMOVD", at(base, 0), f) }, func() {
		t.do("ADD", operand.U64(8), base, tileThird)
		t.do("LD1 third", to, at(tileThird, 0))
	})
}

// storeVector is loadVector's counterpart.
func (t neonTile) storeVector(s neonSection, label string, base text, v int, from armVector) {
	f := text("F" + from.Asm()[1:])
	if !s.part {
		t.do("FMOVQ", f, at(base, 16*v))
		return
	}
	t.part(label, func() { t.do(t.element(), f, at(base, 0)) }, func() { t.do("FMOVD", f, at(base, 0)) }, func() {
		t.do("ADD", operand.U64(8), base, tileThird)
		t.do("ST1 third", from, at(tileThird, 0))
	})
}

// part runs one for 1 element, two for 2 and both two and third for 3. Of float64, a part is 1 element.
func (t neonTile) part(label string, one, two, third func()) {
	if t.bits == 64 {
		one()
		return
	}
	t.compare(tileColsLeft, 2)
	branch(t.c, "BLT", "single_"+label)
	two()
	branch(t.c, "BEQ", "done_"+label)
	third()
	branch(t.c, "B", "done_"+label)
	t.c.Label("single_" + label)
	one()
	t.c.Label("done_" + label)
}
