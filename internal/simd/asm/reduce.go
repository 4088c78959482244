package main

import (
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A reduction is a kernel whose elements are joined into results.
//
// The order does not depend on the instruction set: lane i of 16·groups joins
// elements i, i+16·groups and so on, and at the end the upper half of the lanes
// joins the lower, until one is left.
type reduction struct {
	kernel
	groups  int                                      // of 16 lanes
	results int                                      // how many, each with its own lanes
	start   float64                                  // what the lanes hold first
	step    func(x *vec, acc []operand.Op)           // joins this vector's elements to the lanes of each result
	join    func(x *vec, a, b operand.Op) operand.Op // of two lanes
}

// reductions emits the kernels with results.
func reductions(c *build.Context) {
	p := newPool(c)
	for _, r := range reduceKernels {
		r.emit(c, p)
	}
}

// signature is the kernel's with the results.
func (r reduction) signature() string {
	if r.results == 1 {
		return r.kernel.signature() + " float32"
	}
	return r.kernel.signature() + " (float32, float32)"
}

// emit writes the reduction for both instruction sets.
func (r reduction) emit(c *build.Context, p *pool) {
	begin(c, r.name, r.signature(), r.byLevel())
	r.body = func(x *vec) { // for the rehearsal
		acc := make([]operand.Op, r.results)
		for i := range acc {
			acc[i] = x.copy(x.k(r.start))
		}
		r.step(x, acc)
	}
	constants, touched := r.rehearse(p)
	for _, wide := range []bool{false, true} {
		if wide {
			c.Label("wide")
		}
		x := r.kernel.start(c, p, wide, constants)
		vectors := r.groups * 16 / x.lane()
		acc := make([][]operand.Op, vectors) // by vector, then result
		for u := range acc {
			for range r.results {
				acc[u] = append(acc[u], x.copy(x.k(r.start)))
			}
		}
		n := c.GP64()
		c.Load(c.Param("n"), n)
		c.XORQ(x.index, x.index)

		step := operand.U32(uint32(r.groups * 16))
		loop, tail, fold := x.label("loop"), x.label("tail"), x.label("fold")
		c.SUBQ(step, n)
		c.JLT(operand.LabelRef(tail))
		loops := func(label string) {
			c.Label(label)
			r.prefetch(x, touched, r.groups*16)
			each(c, vectors, wide && r.weave > 0, func(u int) {
				x.ahead = u * x.lane()
				r.step(&vec{x}, acc[u])
			})
			c.ADDQ(step, x.index)
			c.SUBQ(step, n)
			c.JGE(operand.LabelRef(label))
		}
		if wide && r.byLevel() {
			c.CMPB(address(c, "level"), operand.Imm(levelPast))
			c.JNE(operand.LabelRef(loop))
			x.noPrefetch = true
			loops(x.label("nontemporal"))
			x.noPrefetch = false
			c.JMP(operand.LabelRef(tail))
		}
		loops(loop)
		c.Label(tail)
		c.ADDQ(step, n)
		for u := range acc {
			c.TESTQ(n, n)
			c.JLE(operand.LabelRef(fold))
			x.ahead = u * x.lane()
			x.setMask(n)
			r.step(&vec{x}, acc[u])
			x.mask = nil
			c.SUBQ(operand.Imm(uint64(x.lane())), n)
		}
		c.Label(fold)
		r.fold(x, acc)
		c.VZEROUPPER()
		c.RET()
	}
}

// fold joins the lanes of each result and returns them from the function.
func (r reduction) fold(x *avx, acc [][]operand.Op) {
	for w := len(acc) / 2; w > 0; w /= 2 {
		for u := range w {
			for i := range r.results {
				acc[u][i] = r.join(&vec{x}, acc[u][i], acc[u+w][i])
			}
		}
	}
	for i := range r.results {
		v := acc[0][i]
		if x.wide {
			v = r.join(&vec{x}, v, x.op("VSHUFF64X2", operand.Imm(0x4e), v, v)) // lane i and i xor 8
			v = r.join(&vec{x}, v, x.op("VSHUFF64X2", operand.Imm(0xb1), v, v)) // 4
		} else {
			v = r.join(&vec{x}, v, x.op("VPERM2F128", operand.Imm(0x01), v, v)) // 4
		}
		v = r.join(&vec{x}, v, x.op("VPERMILPS", operand.Imm(0x4e), v)) // 2
		v = r.join(&vec{x}, v, x.op("VPERMILPS", operand.Imm(0xb1), v)) // 1
		result, err := x.c.ReturnIndex(i).Resolve()
		if err != nil {
			panic(err)
		}
		x.c.VMOVSS(v.(reg.VecVirtual).AsX(), result.Addr)
	}
}

// ahead returns r with slice x asked for some bytes before it is read.
func (r reduction) ahead(bytes int) reduction {
	r.early = bytes
	return r
}

// unaryReduction is a reduction of one slice into one result.
func unaryReduction(name, scalars string, start float64, join func(x *vec, a, b operand.Op) operand.Op,
	term func(x *vec, v operand.Op) operand.Op) reduction {
	return reduction{
		kernel: kernel{name: name, slices: "x", scalars: scalars, weave: 4, hoist: 12}, groups: 4, results: 1, start: start, join: join,
		step: func(x *vec, acc []operand.Op) {
			t := x.inMask(term(x, x.load("x")), start)
			x.set(acc[0], join(x, acc[0], t))
		},
	}
}
