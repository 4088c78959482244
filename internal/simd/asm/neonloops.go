package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/mmcloughlin/avo/attr"
)

// neonFile returns the kernels of package simd for arm64.
func neonFile() (*ir.File, error) {
	numbers := &numbers{at: map[uint64]int{}}
	file := build.NewContext()
	file.ConstraintExpr("arm64")
	f, err := file.Result()
	if err != nil {
		return nil, err
	}
	for _, k := range mapKernels {
		if k.avxOnly {
			continue
		}
		if err := fit(f, k.name, k.weave, func(c *build.Context, hoist, woven int) { k.neon(c, numbers, hoist, woven) }); err != nil {
			return nil, err
		}
	}
	for _, r := range reduceKernels {
		if err := fit(f, r.name, r.weave, func(c *build.Context, hoist, woven int) { r.neon(c, numbers, hoist, woven) }); err != nil {
			return nil, err
		}
	}
	c := build.NewContext()
	c.StaticGlobal("numbers")
	c.DataAttributes(attr.RODATA | attr.NOPTR)
	for i := range neonLanes {
		c.AddDatum(4*i, operand.U32(uint32(i)))
	}
	for i, b := range numbers.order {
		for j := range neonLanes {
			c.AddDatum(first+16*i+4*j, operand.U32(uint32(b>>(32*(j%2)))))
		}
	}
	g, err := c.Result()
	if err != nil {
		return nil, err
	}
	f.Sections = append(f.Sections, g.Sections...)
	return f, finish(f)
}

// fit adds to f what emit writes: with as many strands woven as it may, and then with as
// many constants in registers, as there are registers for.
func fit(f *ir.File, name string, weave int, emit func(c *build.Context, hoist, woven int)) error {
	for woven := max(weave, 1); woven > 0; woven /= 2 {
		for hoist := 20; hoist >= 0; hoist-- {
			c := build.NewContext()
			emit(c, hoist, woven)
			one, err := c.Result()
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if err := allocate(one); err == nil {
				f.Sections = append(f.Sections, one.Sections...)
				return nil
			} else if !strings.Contains(err.Error(), "failed to allocate registers") {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return errors.New(name + ": too few registers")
}

// startNEON starts a function, loads its parameters and the first of the constants, and
// returns the machine to write bodies with and the number of elements.
func (k kernel) startNEON(c *build.Context, signature string, p *numbers, hoist int, used func(x *vec)) (*neon, reg.GPVirtual) {
	r := k.rehearseNEON(signature, p, used)
	c.Function(k.name)
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr(signature)
	c.Pragma("noescape")
	x := &neon{c: c, numbers: p, name: k.name, double: k.double, ptrs: map[string]reg.GPVirtual{}, given: map[string]reg.GPVirtual{},
		scalars: map[string]operand.Op{}, constants: map[uint64]operand.Op{}, base: c.GP64()}
	param := func(load, name string, to operand.Op) { x.fromMemory(load, address(c, name), to) }
	for _, name := range k.sliceNames() {
		x.ptrs[name] = c.GP64()
		param("MOVD", name, x.ptrs[name])
		if r.optional[name] {
			x.given[name] = c.GP64()
			param("MOVD", name, x.given[name])
		}
	}
	n := c.GP64()
	param("MOVD", "n", n)
	for _, name := range strings.Fields(k.scalars) {
		s := x.reg()
		if k.double {
			param("FMOVD", name, s)
		} else {
			param("FMOVS", name, s)
		}
		x.scalars[name] = x.op("DUP element 0", s)
	}
	instruct(c, "address", []operand.Op{x.base}, nil, x.base, operand.NewDataAddr(operand.NewStaticSymbol("numbers"), 0))
	constants := sorted(r.used)
	for _, b := range constants[:min(hoist, len(constants))] {
		x.constants[b] = x.fresh(b)
	}
	return x, n
}

// sliceNames are the names of the slices.
func (k kernel) sliceNames() []string {
	names := strings.Fields(k.slices)
	for i := range names {
		names[i], _, _ = strings.Cut(names[i], ":")
	}
	return names
}

// rehearseNEON writes the body to nowhere, to see the constants that it uses and the slices that may be nil.
func (k kernel) rehearseNEON(signature string, p *numbers, body func(x *vec)) *neon {
	c := build.NewContext()
	c.Function("rehearsal")
	c.SignatureExpr(signature)
	x := &neon{c: c, numbers: p, double: k.double, ptrs: map[string]reg.GPVirtual{}, given: map[string]reg.GPVirtual{},
		scalars: map[string]operand.Op{}, used: map[uint64]bool{}, optional: map[string]bool{}, base: c.GP64()}
	for _, name := range k.sliceNames() {
		x.ptrs[name] = c.GP64()
	}
	for _, name := range strings.Fields(k.scalars) {
		x.scalars[name] = x.reg()
	}
	body(&vec{x})
	return x
}

// advance moves the pointers n elements on.
func (k kernel) advance(x *neon, n int) {
	for _, s := range strings.Fields(k.slices) {
		name, typ, _ := strings.Cut(s, ":")
		size := k.size()
		if typ == "uint16" {
			size = 2
		}
		p := x.ptrs[name]
		x.change("ADD", p, n*size)
	}
}

// change adds n to r, or subtracts it; with an S in its name the instruction sets the flags.
func (x *neon) change(name string, r reg.GPVirtual, n int) {
	instruct(x.c, name, []operand.Op{r}, []operand.Op{r}, operand.U64(n), r)
}

// neon writes the kernel for arm64: a loop over several vectors, one over the vectors that
// remain, and the elements that remain.
func (k kernel) neon(c *build.Context, p *numbers, hoist, woven int) {
	x, n := k.startNEON(c, k.signature(), p, hoist, k.body)
	unroll, lane := k.unroll, k.lane()
	if k.weave > 0 {
		unroll = woven
	}
	step := unroll * lane
	if step > lane {
		x.change("SUBS", n, step)
		branch(c, "BLT", "tail")
		c.Label("loop")
		each(c, unroll, k.weave > 0, func(u int) {
			x.ahead = u * lane
			k.body(&vec{x})
		})
		k.advance(x, step)
		x.change("SUBS", n, step)
		branch(c, "BGE", "loop")
		c.Label("tail")
		x.change("ADD", n, step)
	}
	x.ahead = 0
	x.change("SUBS", n, lane)
	branch(c, "BLT", "rest")
	c.Label("one")
	k.body(&vec{x})
	k.advance(x, lane)
	x.change("SUBS", n, lane)
	branch(c, "BGE", "one")
	c.Label("rest")
	if !k.whole {
		x.change("ADDS", n, lane)
		branch(c, "BEQ", "end")
		x.count = n
		k.body(&vec{x})
		x.count = nil
		c.Label("end")
	}
	end(c)
}

// neon writes the reduction for arm64, whose lanes are those of the other machines.
func (r reduction) neon(c *build.Context, p *numbers, hoist, woven int) {
	x, n := r.startNEON(c, r.signature(), p, hoist, func(x *vec) {
		acc := make([]operand.Op, r.results)
		for i := range acc {
			acc[i] = x.copy(x.k(r.start))
		}
		r.step(x, acc)
	})
	vectors := r.groups * 16 / neonLanes
	acc := make([][]operand.Op, vectors) // by vector, then result
	for u := range acc {
		for range r.results {
			acc[u] = append(acc[u], x.copy(x.k(r.start)))
		}
	}
	step := vectors * neonLanes
	x.change("SUBS", n, step)
	branch(c, "BLT", "tail")
	c.Label("loop")
	for from := 0; from < vectors; from += woven {
		each(c, woven, r.weave > 0, func(u int) {
			x.ahead = (from + u) * neonLanes
			r.step(&vec{x}, acc[from+u])
		})
	}
	r.advance(x, step)
	x.change("SUBS", n, step)
	branch(c, "BGE", "loop")
	c.Label("tail")
	x.change("ADD", n, step)
	for u := range acc {
		x.ahead = u * neonLanes
		x.change("SUBS", n, neonLanes)
		branch(c, "BLT", fmt.Sprintf("rest%d", u))
		r.step(&vec{x}, acc[u])
	}
	branch(c, "B", "fold")
	for u := range acc {
		x.ahead = u * neonLanes
		c.Label(fmt.Sprintf("rest%d", u))
		x.change("ADDS", n, neonLanes)
		branch(c, "BEQ", "fold")
		x.setMask(n)
		r.step(&vec{x}, acc[u])
		x.count, x.mask = nil, nil
		if u < vectors-1 {
			branch(c, "B", "fold")
		}
	}
	c.Label("fold")
	for w := vectors / 2; w > 0; w /= 2 {
		for u := range w {
			for i := range r.results {
				acc[u][i] = r.join(&vec{x}, acc[u][i], acc[u+w][i])
			}
		}
	}
	for i := range r.results {
		v := acc[0][i]
		v = r.join(&vec{x}, v, x.op("EXT", v))   // lane i and i xor 2
		v = r.join(&vec{x}, v, x.op("REV64", v)) // 1
		result, err := c.ReturnIndex(i).Resolve()
		if err != nil {
			panic(err)
		}
		x.toMemory("FMOVS", v, result.Addr)
	}
	end(c)
}

// setMask restricts loads, stores and inMask to the first n lanes of 1 to 3.
func (x *neon) setMask(n reg.GPVirtual) {
	lanes := x.reg()
	x.fromMemory("FMOVQ", operand.Mem{Base: x.base}, lanes)
	x.count, x.mask = n, x.op("CMGT", x.op("DUP", n), lanes)
}
