package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
)

// prefetches emits prefetchLines(p *byte, n int), which asks for the cache lines
// of n > 0 bytes.
func prefetches(c *build.Context) {
	c.Function("prefetchLines")
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr(prefetchSignature)
	c.Pragma("noescape")
	p, n := c.GP64(), c.GP64()
	c.Load(c.Param("p"), p)
	c.Load(c.Param("n"), n)
	c.Label("line")
	c.PREFETCHT0(operand.Mem{Base: p})
	c.ADDQ(operand.Imm(64), p)
	c.SUBQ(operand.Imm(64), n)
	c.JG(operand.LabelRef("line"))
	c.RET()
}

const prefetchSignature = "func(p *byte, n int)"
