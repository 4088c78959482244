package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// rowCopies emits what moves rows of matrices: with AVX-512, and transposition with AVX2 too.
func rowCopies(c *build.Context) {
	for bits := 32; bits <= 64; bits *= 2 {
		laneNumbers(c, bits)
	}
	for _, k := range rowKernels {
		k.emit(c, k.name)
	}
}

// rowKernels are the functions on rows of bytes.
var rowKernels = []struct {
	name, signature string
	emit            func(c *build.Context, name string)
}{
	{"copyRowsVec", copyRowsSignature, copyRows},
	{"transpose32Vec", transposeSignature, func(c *build.Context, name string) { transpose(c, name, 4) }},
	{"transpose64Vec", transposeSignature, func(c *build.Context, name string) { transpose(c, name, 8) }},
	{"transposeBF16Vec", transposeSignature, transposeBF16},
	{"zipRowsVec", zipRowsSignature, zipRows},
	{"fromRowsBF16Vec", fromRowsSignature, fromRowsBF16},
	{"toRowsBF16Vec", zipRowsSignature, toRowsBF16},
	{"reverseVec", "func(dst, src *float32, n int)", reverse},
	{"fromF32Vec", "func(dst *float64, src *float32, n int)", fromF32},
	{"toF32Vec", "func(dst *float32, src *float64, n int)", toF32},
}

const (
	copyRowsSignature  = "func(wide bool, dst *byte, dstStep, dstAhead int, src *byte, srcStep, srcAhead, n, rows int)"
	transposeSignature = "func(wide bool, dst *byte, dstStep int, src *byte, srcStep, rows, cols int)"
	zipRowsSignature   = "func(dst *byte, dstStep int, src *byte, srcStep, n, rows int)"
	fromRowsSignature  = "func(dst *byte, dstStep int, src *byte, srcStep, srcAhead, n, rows int)"
)

// rowFunction starts a function on rows of bytes.
func rowFunction(c *build.Context, name, signature, doc string) {
	c.Function(name)
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr(signature)
	c.Doc(name + " " + doc)
	c.Pragma("noescape")
}

// copyRows moves rows of any length, their last part under a mask. With each part of a
// row it asks for that of a later one, dstAhead and srcAhead bytes on: the processor
// does not see where rows begin. AVX2 has no masks for bytes: without AVX-512 a row is whole vectors.
func copyRows(c *build.Context, name string) {
	rowFunction(c, name, copyRowsSignature, "copies rows > 0 rows of n > 0 bytes, unless wide a multiple of 32.")
	dst, dstStep, src, srcStep, n, rows := reg.RDI, reg.R8, reg.RSI, reg.R9, reg.RDX, reg.RCX
	tail, at := reg.RBX, reg.RAX
	dstAhead, srcAhead, laterDst, laterSrc := reg.R10, reg.R11, reg.R12, reg.R14
	load(c, "dst", dst, "dstStep", dstStep, "dstAhead", dstAhead, "src", src, "srcStep", srcStep, "srcAhead", srcAhead, "n", n, "rows", rows)
	vectors := func(label string, bytes uint64, copy func(src, dst operand.Mem)) {
		c.Label(label + "row")
		c.LEAQ(operand.Mem{Base: src, Index: srcAhead, Scale: 1}, laterSrc)
		c.LEAQ(operand.Mem{Base: dst, Index: dstAhead, Scale: 1}, laterDst)
		c.XORQ(at, at)
		c.Label(label + "vector")
		c.PREFETCHT0(operand.Mem{Base: laterSrc, Index: at, Scale: 1})
		c.PREFETCHT0(operand.Mem{Base: laterDst, Index: at, Scale: 1})
		copy(operand.Mem{Base: src, Index: at, Scale: 1}, operand.Mem{Base: dst, Index: at, Scale: 1})
		c.ADDQ(operand.Imm(bytes), at)
		c.CMPQ(at, n)
		c.JLT(operand.LabelRef(label + "vector"))
	}
	c.CMPB(address(c, "wide"), operand.Imm(0))
	c.JE(operand.LabelRef("narrowrow"))
	c.MOVQ(n, tail)
	c.ANDQ(operand.Imm(63), tail)
	byteMask(c, tail, reg.K1)
	c.SUBQ(tail, n) // whole vectors
	c.JE(operand.LabelRef("short"))
	vectors("", 64, func(src, dst operand.Mem) {
		c.VMOVDQU64(src, reg.Z0)
		c.VMOVDQU64(reg.Z0, dst)
	})
	c.TESTQ(tail, tail)
	c.JE(operand.LabelRef("next"))
	c.VMOVDQU8_Z(operand.Mem{Base: src, Index: at, Scale: 1}, reg.K1, reg.Z0)
	c.VMOVDQU8(reg.Z0, reg.K1, operand.Mem{Base: dst, Index: at, Scale: 1})
	c.Label("next")
	nextRow(c, dst, dstStep, src, srcStep, rows, "row")

	c.Label("short")
	c.PREFETCHT0(operand.Mem{Base: src, Index: srcAhead, Scale: 1})
	c.PREFETCHT0(operand.Mem{Base: dst, Index: dstAhead, Scale: 1})
	c.VMOVDQU8_Z(operand.Mem{Base: src}, reg.K1, reg.Z0)
	c.VMOVDQU8(reg.Z0, reg.K1, operand.Mem{Base: dst})
	nextRow(c, dst, dstStep, src, srcStep, rows, "short")

	vectors("narrow", 32, func(src, dst operand.Mem) {
		c.VMOVDQU(src, reg.Y0)
		c.VMOVDQU(reg.Y0, dst)
	})
	nextRow(c, dst, dstStep, src, srcStep, rows, "narrowrow")
}

// reverse turns a row round, from its end on.
func reverse(c *build.Context, name string) {
	rowFunction(c, name, "func(dst, src *float32, n int)", "writes element i of src to n-1-i of dst, for n > 0, a multiple of 16.")
	dst, src, n := reg.RDI, reg.RSI, reg.RDX
	load(c, "dst", dst, "src", src, "n", n)
	c.Label("vector")
	for i, v := range []reg.VecPhysical{reg.Y0, reg.Y1} {
		c.VPERMQ(operand.Imm(0x4e), operand.Mem{Base: src, Index: n, Scale: 4, Disp: -32 * (i + 1)}, v) // the halves
		c.VPSHUFD(operand.Imm(0x1b), v, v)                                                              // and the elements of each
		c.VMOVUPS(v, operand.Mem{Base: dst, Disp: 32 * i})
	}
	c.ADDQ(operand.Imm(64), dst)
	c.SUBQ(operand.Imm(16), n)
	c.JNE(operand.LabelRef("vector"))
	c.VZEROUPPER()
	c.RET()
}

// fromF32 widens float32 to float64.
func fromF32(c *build.Context, name string) {
	rowFunction(c, name, "func(dst *float64, src *float32, n int)", "widens element i of src to i of dst, for n > 0, a multiple of 16.")
	converted(c, 4, func(src, dst operand.Mem, v reg.VecPhysical) {
		c.VCVTPS2PD(src, v)
		c.VMOVUPD(v, dst)
	})
}

// toF32 rounds float64 to float32.
func toF32(c *build.Context, name string) {
	rowFunction(c, name, "func(dst *float32, src *float64, n int)", "rounds element i of src to i of dst, for n > 0, a multiple of 16.")
	converted(c, 8, func(src, dst operand.Mem, v reg.VecPhysical) {
		c.VCVTPD2PSY(src, v.AsX())
		c.VMOVUPS(v.AsX(), dst)
	})
}

// converted converts 16 elements at a time, four by each call of four. Each of src has a number of bytes, 4 or 8, and each of dst the
// other number. It prefetches both.
func converted(c *build.Context, bytes int, four func(src, dst operand.Mem, v reg.VecPhysical)) {
	dst, src, n, at := reg.RDI, reg.RSI, reg.RDX, reg.RAX
	load(c, "dst", dst, "src", src, "n", n)
	c.XORQ(at, at)
	c.Label("vector")
	from := func(p reg.GPPhysical, size, disp int) operand.Mem {
		return operand.Mem{Base: p, Index: at, Scale: uint8(size), Disp: disp}
	}
	for line := 0; line < 16*bytes; line += 64 {
		c.PREFETCHT0(from(src, bytes, soon+line))
	}
	for line := 0; line < 16*(12-bytes); line += 64 {
		c.PREFETCHT0(from(dst, 12-bytes, soon+line))
	}
	for i, v := range []reg.VecPhysical{reg.Y0, reg.Y1, reg.Y2, reg.Y3} {
		four(from(src, bytes, 4*i*bytes), from(dst, 12-bytes, 4*i*(12-bytes)), v)
	}
	c.ADDQ(operand.Imm(16), at)
	c.CMPQ(at, n)
	c.JLT(operand.LabelRef("vector"))
	c.VZEROUPPER()
	c.RET()
}

// byteMask sets the lowest n < 64 bits of a mask.
func byteMask(c *build.Context, n reg.GPPhysical, k reg.OpmaskPhysical) {
	all := reg.R13
	c.MOVQ(operand.I32(-1), all)
	c.BZHIQ(n, all, all)
	c.KMOVQ(all, k)
}

// load loads parameters, given by name, into registers.
func load(c *build.Context, pairs ...any) {
	for i := 0; i < len(pairs); i += 2 {
		c.Load(c.Param(pairs[i].(string)), pairs[i+1].(reg.Register))
	}
}

// lowMask sets the lowest min(n, most) bits of a mask and clears the others.
func lowMask(c *build.Context, n reg.GPPhysical, most int, k reg.OpmaskPhysical) {
	wide := reg.R15
	c.MOVQ(operand.U32(uint32(most)), wide)
	c.CMPQ(n, wide)
	c.CMOVQLT(n, wide)
	c.MOVL(operand.U32(0xffffffff), reg.R13L)
	c.BZHIL(wide.As32(), reg.R13L, reg.R13L)
	c.KMOVW(reg.R13L, k)
}

// zipRows makes one row of each two, of elements of 2 bytes: one of the first, one of the
// second and so on. It prefetches along the rows, of which the next call reads the next part.
func zipRows(c *build.Context, name string) {
	rowFunction(c, name, zipRowsSignature,
		"makes rows > 0 rows of 2·n elements of 2 bytes, 0 < n ≤ 32, from twice as many of n; steps are in bytes.")
	dst, dstStep, src, srcStep, n, rows := reg.RDI, reg.R8, reg.RSI, reg.R9, reg.RDX, reg.RCX
	load(c, "dst", dst, "dstStep", dstStep, "src", src, "srcStep", srcStep, "n", n, "rows", rows)
	const lanes = 16
	part := func(v int, k reg.OpmaskPhysical) {
		first, second := zmm[2*v+1], zmm[2*v]
		from := operand.Mem{Base: src, Disp: 2 * lanes * v}
		c.VPMOVZXWD_Z(from, k, first)
		from.Index, from.Scale = srcStep, 1
		c.VPMOVZXWD_Z(from, k, second)
		c.VPSLLD(operand.Imm(16), second, second)
		c.VPORD(first, second, second)
		c.VMOVDQU32(second, k, operand.Mem{Base: dst, Disp: 4 * lanes * v})
	}
	ahead := func() {
		const distance = 192 // bytes
		c.PREFETCHT0(operand.Mem{Base: src, Disp: distance})
		c.PREFETCHT0(operand.Mem{Base: src, Index: srcStep, Scale: 1, Disp: distance})
	}
	next := func(label string) {
		c.LEAQ(operand.Mem{Base: src, Index: srcStep, Scale: 2}, src)
		c.ADDQ(dstStep, dst)
		c.DECQ(rows)
		c.JNE(operand.LabelRef(label))
		c.VZEROUPPER()
		c.RET()
	}
	lowMask(c, n, lanes, reg.K1)
	c.SUBQ(operand.Imm(lanes), n)
	c.JLE(operand.LabelRef("narrow"))
	lowMask(c, n, lanes, reg.K2)
	c.Label("wide")
	ahead()
	part(0, reg.K1)
	part(1, reg.K2)
	next("wide")
	c.Label("narrow")
	ahead()
	part(0, reg.K1)
	next("narrow")
}

// nextRow goes on at a label with the next row, and returns after the last one.
func nextRow(c *build.Context, dst, dstStep, src, srcStep, rows reg.GPPhysical, label string) {
	c.ADDQ(srcStep, src)
	c.ADDQ(dstStep, dst)
	c.DECQ(rows)
	c.JNE(operand.LabelRef(label))
	c.VZEROUPPER()
	c.RET()
}
