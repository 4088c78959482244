package rates

import (
	"slices"

	"github.com/gorun-spmd/gorun/internal/forecast"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// functionFLOPs is what package tensor/meta counts for a function of an element.
const functionFLOPs = 8

// kernels measures all kernels, which take turns.
func (s *Stopwatch) kernels(m *forecast.Machine) error {
	var calls []func() error
	var put []func(seconds float64) // what becomes of the time of each call
	add := func(call func(), to func(seconds float64)) {
		calls, put = append(calls, func() error { call(); return nil }), append(put, to)
	}
	scope := s.dev.Open() // the tensors go with it
	defer scope.Close()
	all := tensor.Full(s.dev, tensor.Float32, 1, farElements)
	for _, n := range []int{1, 1 << 12, 1 << 16, 1 << 20, 1 << 22} { // of kernels alone: package tensor is part of the program
		pairs, y := far(all, n), tensor.New(s.dev, tensor.Float32, n)
		add(func() { x := pairs(); s.dev.Binary(kernel.OpAdd, tensor.Float32, y.Ptr(), x[0].Ptr(), x[1].Ptr(), n) }, func(seconds float64) {
			m.Memory = append(m.Memory, forecast.Point{Work: float64(3 * n * tensor.Float32.Size()), Seconds: seconds})
		})
		if n <= 1<<16 {
			add(func() { s.dev.Unary(kernel.OpGelu, tensor.Float32, y.Ptr(), pairs()[0].Ptr(), n) }, func(seconds float64) {
				m.Functions = append(m.Functions, forecast.Point{Work: float64(functionFLOPs * n), Seconds: seconds})
			})
		}
	}
	beside := func(seconds float64) float64 { return max(seconds-m.Memory[0].Seconds, 1e-9) } // without the call; after Memory
	for _, dt := range []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float64} {
		for _, n := range []int{15, 27, 45, 90, 160, 320, 512} { // the small ones end within a tile, as most do; from 512 on on several cores
			flops := 2 * n * n * n
			many := max(1, 1<<21/flops)
			sets := max(1, farElements/4/(many*n*n)) // each time other matrices, see far
			a, b := tensor.Full(s.dev, dt, 1, sets*many, n, n), tensor.Full(s.dev, dt, 2, sets*many, n, n)
			next := 0
			add(func() {
				next = (next + 1) % sets
				tensor.MatMul(tensor.Narrow(a, 0, next*many, many), tensor.Narrow(b, 0, next*many, many), false, true)
			}, func(seconds float64) {
				m.Products[dt.String()] = append(m.Products[dt.String()], forecast.Point{Work: float64(flops),
					Seconds: beside(seconds) / float64(many)})
			})
		}
	}
	s.attention(func(flops float64, call func(), to *float64) {
		add(call, func(seconds float64) { // after Products
			*to = beside(seconds) / beside(m.Kernel("MatMul", "float32", int(flops), 0, 0))
		})
	}, m)
	s.rows(func(name string, rows, bytes int, call func()) {
		add(call, func(seconds float64) { // after Memory
			m.Rows[name] = max(0, seconds-m.Kernel("", "", 0, bytes, 0)) / float64(rows)
		})
	})
	seconds, err := s.Each(calls...)
	if err != nil {
		return err
	}
	for i, t := range seconds {
		put[i](t)
	}
	for _, points := range [][]forecast.Point{m.Products["float32"], m.Products["bfloat16"], m.Products["float64"], m.Memory, m.Functions} {
		for i := len(points) - 2; i >= 0; i-- { // less work takes no longer, whatever else the machine did then
			points[i].Seconds = min(points[i].Seconds, points[i+1].Seconds)
		}
	}
	return nil
}

// farElements is how many numbers are more than near caches have.
const farElements = 1 << 23

// far returns a function that returns two parts of all of n elements, each time others, which no near cache has any more: so a
// kernel finds what it reads in a step, where other kernels came between.
func far(all *tensor.Tensor, n int) func() [2]*tensor.Tensor {
	sets := all.Numel() / (2 * n)
	if n == 1 { // that is for what a call takes
		sets = 1
	}
	pairs := make([][2]*tensor.Tensor, sets)
	for i := range pairs {
		pairs[i] = [2]*tensor.Tensor{tensor.Narrow(all, 0, 2*i*n, n), tensor.Narrow(all, 0, (2*i+1)*n, n)}
	}
	next := 0
	return func() [2]*tensor.Tensor {
		next++
		return pairs[next%sets]
	}
}

// attention hands attention and its gradient to measure, with the operations that package tensor/meta counts.
func (s *Stopwatch) attention(measure func(flops float64, call func(), to *float64), m *forecast.Machine) {
	const heads, length, dim = 4, 128, 64
	const pairs = heads * length * length / 2
	q := tensor.Full(s.dev, tensor.Float32, 0.1, 1, heads, length, dim)
	y, lse := tensor.Attention(q, q, q, true)
	measure(pairs*(4*dim+functionFLOPs), func() { tensor.Attention(q, q, q, true) }, &m.Attention)
	measure(pairs*(10*dim+functionFLOPs), func() { tensor.AttentionGrad(q, q, q, q, y, lse, true) }, &m.AttentionGrad)
}

// rows hands kernels that find rows by an index to measure, and a list, with how many rows and how many bytes they read and write.
// Those of tables lie here and there in one, and each call takes others, which no near cache has any more; IndexSelect and IndexAdd pick
// columns.
func (s *Stopwatch) rows(measure func(name string, rows, bytes int, call func())) {
	const n, width, of = 1 << 12, 16, 1 << 16
	const bytes = n * width * 4
	list := make([]int64, of)
	for i := range list {
		list[i] = int64(i * 40503 % of) // distinct, as 40503 is odd
	}
	table, state := tensor.Zeros(s.dev, tensor.Float32, of, width), tensor.Zeros(s.dev, tensor.Float32, of)
	all := tensor.Full(s.dev, tensor.Float32, 1, of, width)
	type set struct {
		ids, few, values *tensor.Tensor
		u, often         tensor.Uniq
	}
	var sets [of / n]set
	for i := range sets {
		own := list[i*n:][:n]
		ids := tensor.FromSlice(s.dev, own, n)
		sets[i] = set{ids, tensor.Narrow(ids, 0, 0, n/4), tensor.Narrow(all, 0, i*n, n), tensor.Unique(ids, 0, of),
			tensor.Unique(tensor.FromSlice(s.dev, slices.Repeat(own[:n/16], 16), n), 0, of)}
	}
	turn := 0
	next := func() *set {
		turn = (turn + 1) % len(sets)
		return &sets[turn]
	}
	measure("TakeRows", n, 2*bytes, func() { tensor.TakeRows(table, next().ids, 0) })
	const columns = 256
	some := tensor.Arange(s.dev, tensor.Int64, columns/2, columns)
	wide, narrow := tensor.Zeros(s.dev, tensor.Float32, 16, 2*columns), tensor.Full(s.dev, tensor.Float32, 1, 16, columns)
	measure("IndexSelect", 16*columns, 2*narrow.Bytes(), func() { tensor.IndexSelect(wide, 1, some) })
	measure("IndexAdd", 16*columns, 3*narrow.Bytes(), func() { tensor.IndexAddTo(wide, 1, some, narrow) })
	measure("Unique", n/4, 8*8*n/4, func() { tensor.Unique(next().few, 0, of) })
	measure("SumSegments", n, 2*bytes, func() { x := next(); x.often.SumRows(x.values) })
	measure("AdagradRows", n, 4*bytes, func() {
		x := next()
		tensor.Adagrad{LR: 1e-3, Eps: 1e-10}.StepRows(table, tensor.Rows{Index: x.u.Index, Values: x.values}, state, nil)
	})
}
