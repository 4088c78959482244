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

// prefetchLines asks for the cache lines of n > 0 bytes.
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

// cpuid asks the processor about itself.
func cpuid(c *build.Context) {
	c.Load(c.Param("leaf"), reg.EAX)
	c.XORL(reg.ECX, reg.ECX)
	c.CPUID()
	for i, r := range []reg.Register{reg.EAX, reg.EBX, reg.ECX, reg.EDX} {
		c.Store(r, c.ReturnIndex(i))
	}
}
