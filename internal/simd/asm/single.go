package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// singles are the functions that are one instruction, more or less.
var singles = []struct {
	name, signature string
	body            func(c *build.Context)
}{
	{"prefetchLines", "func(p *byte, n int)", prefetchLines},
	{"copyNonTemporal", "func(dst *byte, src *byte)", copyNonTemporal},
	{"storeFence", "func()", func(c *build.Context) { c.SFENCE() }},
	{"cpuid", "func(leaf uint32) (a uint32, b uint32, c uint32, d uint32)", cpuid},
}

// instructions emits the singles.
func instructions(c *build.Context) {
	for _, s := range singles {
		c.Function(s.name)
		c.Attributes(attr.NOSPLIT)
		c.SignatureExpr(s.signature)
		c.Pragma("noescape")
		s.body(c)
		c.RET()
	}
}

// prefetchLines prefetches the cache lines of n > 0 bytes.
func prefetchLines(c *build.Context) {
	p, n := c.GP64(), c.GP64()
	c.Load(c.Param("p"), p)
	c.Load(c.Param("n"), n)
	c.Label("line")
	c.PREFETCHT0(operand.Mem{Base: p})
	c.ADDQ(operand.Imm(64), p)
	c.SUBQ(operand.Imm(64), n)
	c.JG(operand.LabelRef("line"))
}

// copyNonTemporal copies 64 KiB with non-temporal stores. dst begins at a cache line. Four
// quarters are copied side by side, because the processor prefetches only within a page.
func copyNonTemporal(c *build.Context) {
	const quarter, vectors = 16 << 10, 4
	dst, src, n := c.GP64(), c.GP64(), c.GP64()
	c.Load(c.Param("dst"), dst)
	c.Load(c.Param("src"), src)
	c.MOVQ(operand.U32(quarter/(vectors*vectorBytes)), n)
	c.Label("four")
	var z [4 * vectors]reg.VecVirtual
	at := func(p reg.Register, i int) operand.Mem {
		return operand.Mem{Base: p, Disp: i/vectors*quarter + i%vectors*vectorBytes}
	}
	for i := range z {
		z[i] = c.ZMM()
		c.VMOVUPS(at(src, i), z[i])
	}
	for i := range z {
		c.VMOVNTPS(z[i], at(dst, i))
	}
	c.ADDQ(operand.U32(vectors*vectorBytes), src)
	c.ADDQ(operand.U32(vectors*vectorBytes), dst)
	c.DECQ(n)
	c.JNE(operand.LabelRef("four"))
	c.VZEROUPPER()
}

// cpuid asks the processor about itself.
func cpuid(c *build.Context) {
	c.Load(c.Param("leaf"), reg.EAX)
	c.XORL(reg.ECX, reg.ECX)
	c.CPUID()
	for i, r := range []reg.Register{reg.EAX, reg.EBX, reg.ECX, reg.EDX} {
		c.Store(r, c.ReturnIndex(i))
	}
}
