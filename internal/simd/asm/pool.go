package main

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
)

// A pool is the constants of one file, each 32 bytes wide. They are known by their first 8 bytes.
type pool struct {
	c       *build.Context
	tables  map[uint64]operand.Mem
	lanes   operand.Mem // 0, 1, … 7 of 32 bits
	lanes64 operand.Mem // 0, 1, 2, 3 of 64 bits
}

func newPool(c *build.Context) *pool {
	p := &pool{c: c, tables: map[uint64]operand.Mem{}}
	p.lanes = c.StaticGlobal("lanes")
	c.DataAttributes(attr.RODATA | attr.NOPTR)
	for i := range 8 {
		c.AddDatum(4*i, operand.U32(uint32(i)))
	}
	return p
}

// doubleLanes returns the numbers of the lanes of float64.
func (p *pool) doubleLanes() operand.Mem {
	if p.lanes64.Symbol.Name == "" {
		p.lanes64 = p.c.StaticGlobal("lanes64")
		p.c.DataAttributes(attr.RODATA | attr.NOPTR)
		for i := range 4 {
			p.c.AddDatum(8*i, operand.U64(uint64(i)))
		}
	}
	return p.lanes64
}

// table returns where the constant with these bits lies.
func (p *pool) table(bits uint64) operand.Mem {
	m, ok := p.tables[bits]
	if ok {
		return m
	}
	low := uint32(bits)
	single := twice(low) == bits
	if single {
		m = p.c.StaticGlobal(fmt.Sprintf("x%08x", low))
	} else {
		m = p.c.StaticGlobal(fmt.Sprintf("x%016x", bits))
	}
	p.c.DataAttributes(attr.RODATA | attr.NOPTR)
	for i := range 8 {
		if single {
			p.c.AddDatum(4*i, operand.U32(low))
		} else if i < 4 {
			p.c.AddDatum(8*i, operand.U64(bits))
		}
	}
	p.tables[bits] = m
	return m
}

// twice is 32 bits in both halves of 64.
func twice(bits uint32) uint64 { return uint64(bits)<<32 | uint64(bits) }

// bitsOf returns the first 8 bytes of a vector of v.
func bitsOf(v float64, double bool) uint64 {
	if double {
		return math.Float64bits(v)
	}
	return twice(math.Float32bits(float32(v)))
}

// filled returns the first 8 bytes of a vector of elements with these bits.
func filled(b uint64, double bool) uint64 {
	if double {
		return b
	}
	return twice(uint32(b))
}
