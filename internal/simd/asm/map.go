package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A kernel is a loop over the elements of some slices.
type kernel struct {
	name        string
	slices      string // their names, blank separated; "name:type" for other elements than float32
	scalars     string // of float32
	double      bool   // the elements and scalars are float64 instead
	unroll      int    // vectors an iteration
	body        func(x *vec)
	whole       bool   // has no tail: n is a multiple of 16
	early       int    // how many bytes ahead the slices are prefetched; 0: soon
	inCache     string // the slice that is not prefetched, because it is in the cache
	nonTemporal bool   // in a non-temporal mode its stores are non-temporal and it does not prefetch
	noPrefetch  bool   // in a non-temporal mode it does not prefetch
	weave       int    // vectors an iteration with AVX-512, their instructions in turns; 0: unroll, one after the other
	avxOnly     bool   // arm64 has none
	hoist       int    // the most constants in registers with AVX-512; 0: hoisted
}

// soon is how many bytes ahead slices are prefetched. The processor prefetches by itself
// too, but it stops at the end of each page of 4 KiB and leaves stores out. Without
// these prefetches a copy of 64 MiB takes 1.3 times as long (Cascade Lake).
const soon = 2 << 10

// prefetch prefetches the part of each slice that lies early bytes after the next n
// elements. It does so beyond the end of the slice as well, because the next call often
// continues there. A prefetch of an address without memory costs some 25 ns a line.
func (k kernel) prefetch(x *avx, touched []touch, n int) {
	early := cmp.Or(k.early, soon)
	for _, t := range touched {
		if t.slice == k.inCache || x.noPrefetch {
			continue
		}
		for at := 0; at < int(t.size)*n; at += 64 {
			x.c.PREFETCHT0(operand.Mem{Base: x.ptrs[t.slice], Index: x.index, Scale: t.size, Disp: early + at})
		}
	}
}

// maps emits the kernels whose elements do not depend on each other.
func maps(c *build.Context) {
	p := newPool(c)
	for _, k := range mapKernels {
		k.emit(c, p)
	}
}

// byLevel reports whether the kernel has the level as its argument, rather than whether
// it is wide.
func (k kernel) byLevel() bool { return k.nonTemporal || k.noPrefetch }

// signature is the Go type of the kernel's function.
func (k kernel) signature() string {
	var b strings.Builder
	if k.byLevel() {
		b.WriteString("func(level uint8")
	} else {
		b.WriteString("func(wide bool")
	}
	for _, s := range strings.Fields(k.slices) {
		name, typ, ok := strings.Cut(s, ":")
		if !ok {
			typ = k.typ()
		}
		fmt.Fprintf(&b, ", %s *%s", name, typ)
	}
	b.WriteString(", n int")
	for _, s := range strings.Fields(k.scalars) {
		fmt.Fprintf(&b, ", %s %s", s, k.typ())
	}
	return b.String() + ")"
}

// typ is the Go type of elements and scalars.
func (k kernel) typ() string {
	if k.double {
		return "float64"
	}
	return "float32"
}

// emit writes the kernel for both instruction sets, chosen by its parameter wide.
func (k kernel) emit(c *build.Context, p *pool) {
	begin(c, k.name, k.signature(), k.byLevel())
	constants, touched := k.rehearse(p)
	for _, wide := range []bool{false, true} {
		if wide {
			c.Label("wide")
		}
		x := k.start(c, p, wide, constants)
		unroll := k.unroll
		if wide && k.weave > 0 {
			unroll = k.weave
		}
		step := unroll * x.lane()
		n := c.GP64()
		c.Load(c.Param("n"), n)
		c.XORQ(x.index, x.index)

		loop, tail, one, end := x.label("loop"), x.label("tail"), x.label("one"), x.label("end")
		c.SUBQ(operand.U32(uint32(step)), n)
		c.JLT(operand.LabelRef(tail))
		loops := func(label string) {
			c.Label(label)
			k.prefetch(x, touched, step)
			each(c, unroll, unroll == k.weave, func(u int) {
				x.ahead = u * x.lane()
				k.body(&vec{x})
			})
			c.ADDQ(operand.U32(uint32(step)), x.index)
			c.SUBQ(operand.U32(uint32(step)), n)
			c.JGE(operand.LabelRef(label))
		}
		if wide && k.byLevel() {
			c.CMPB(address(c, "level"), operand.Imm(levelPast))
			c.JNE(operand.LabelRef(loop))
			if k.nonTemporal {
				c.TESTQ(operand.U32(vectorBytes-1), x.ptrs["dst"]) // such stores are to whole lines
				c.JNE(operand.LabelRef(loop))
			}
			x.nonTemporal, x.noPrefetch = k.nonTemporal, true
			loops(x.label("nontemporal"))
			x.nonTemporal, x.noPrefetch = false, false
			c.JMP(operand.LabelRef(tail))
		}
		loops(loop)
		c.Label(tail)
		if !k.whole || unroll > 1 {
			c.ADDQ(operand.U32(uint32(step)), n)
			c.JE(operand.LabelRef(end))
			c.Label(one)
			x.ahead = 0
			if !k.whole {
				x.setMask(n)
			}
			k.body(&vec{x})
			x.mask = nil
			c.ADDQ(operand.Imm(uint64(x.lane())), x.index)
			c.SUBQ(operand.Imm(uint64(x.lane())), n)
			c.JGT(operand.LabelRef(one))
		}
		c.Label(end)
		c.VZEROUPPER()
		c.RET()
	}
}

// The codes of package simd's modes, and the bytes of a vector of AVX-512.
const (
	levelAVX2   = 1
	levelPast   = 3
	vectorBytes = 64
)

// begin starts a function and branches to the label wide, by its parameter level or
// wide.
func begin(c *build.Context, name, signature string, byLevel bool) {
	c.Function(name)
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr(signature)
	c.Pragma("noescape")
	if byLevel {
		c.CMPB(address(c, "level"), operand.Imm(levelAVX2))
	} else {
		c.CMPB(address(c, "wide"), operand.Imm(0))
	}
	c.JNE(operand.LabelRef("wide"))
}

// hoisted is how many constants may stay in registers, of which AVX-512 has 32.
const hoisted = 18

// start loads the parameters and, with AVX-512, the first of the constants, and
// returns the vec to write bodies with.
func (k kernel) start(c *build.Context, p *pool, wide bool, constants []uint64) *avx {
	x := &avx{c: c, wide: wide, double: k.double, pool: p, ptrs: map[string]reg.GPVirtual{}, scalars: map[string]operand.Op{},
		labels: new(int), index: c.GP64()}
	for _, s := range strings.Fields(k.slices) {
		name, _, _ := strings.Cut(s, ":")
		x.ptrs[name] = c.GP64()
		c.Load(c.Param(name), x.ptrs[name])
	}
	for _, name := range strings.Fields(k.scalars) {
		x.scalars[name] = address(c, name)
		if wide {
			x.scalars[name] = x.op("VBROADCASTSS", address(c, name))
		}
	}
	if wide {
		x.constants = map[uint64]operand.Op{}
		for _, b := range constants[:min(len(constants), cmp.Or(k.hoist, hoisted))] {
			x.constants[b] = x.op("VBROADCASTSS", p.table(b))
		}
	}
	return x
}

// rehearse writes the body to nowhere and returns the constants and slices it uses.
func (k kernel) rehearse(p *pool) (constants []uint64, touched []touch) {
	c := build.NewContext()
	c.Function("rehearsal")
	c.SignatureExpr(k.signature())
	x := &avx{c: c, wide: true, double: k.double, pool: p, ptrs: map[string]reg.GPVirtual{}, scalars: map[string]operand.Op{},
		labels: new(int), index: c.GP64(), used: map[uint64]bool{}}
	for _, s := range strings.Fields(k.slices) {
		name, _, _ := strings.Cut(s, ":")
		x.ptrs[name] = c.GP64()
	}
	for _, name := range strings.Fields(k.scalars) {
		x.scalars[name] = x.reg()
	}
	k.body(&vec{x})
	return sorted(x.used), x.touched
}

// label returns a label of this instruction set's part of the function.
func (x *avx) label(what string) string {
	if x.wide {
		return what + "16"
	}
	return what + "8"
}

// setMask restricts loads and stores to the first n lanes.
func (x *avx) setMask(n reg.GPVirtual) {
	c := x.c
	if x.wide {
		all, k := c.GP32(), c.K()
		c.MOVL(operand.U32(0xffffffff), all)
		c.BZHIL(n.As32(), all, all)
		c.KMOVW(all, k)
		x.mask = k
		return
	}
	count, m := c.XMM(), c.YMM()
	c.VMOVQ(n, count)
	if x.double {
		c.VPBROADCASTQ(count, m)
		c.VPCMPGTQ(x.doubleLanes(), m, m)
		x.mask = m
		return
	}
	c.VPBROADCASTD(count, m)
	c.VPCMPGTD(x.lanes, m, m)
	x.mask = m
}
