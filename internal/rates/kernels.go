package rates

import (
	"slices"

	"github.com/gorun-spmd/gorun/internal/forecast"
	"github.com/gorun-spmd/gorun/internal/index"
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
	for _, n := range []int{1, 1 << 12, 1 << 16, 1 << 20, 1 << 22} {
		pairs := far(all, n)
		add(func() { x := pairs(); tensor.Binary(kernel.OpAdd, x[0], x[1]) }, func(seconds float64) {
			m.Memory = append(m.Memory, forecast.Point{Work: float64(3 * n * tensor.Float32.Size()), Seconds: seconds})
		})
		if n <= 1<<16 {
			add(func() { tensor.Unary(kernel.OpGelu, pairs()[0]) }, func(seconds float64) {
				m.Functions = append(m.Functions, forecast.Point{Work: float64(functionFLOPs * n), Seconds: seconds})
			})
		}
	}
	beside := func(seconds float64) float64 { return max(seconds-m.Memory[0].Seconds, 1e-9) } // without the call; after Memory
	for _, dt := range []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float64} {
		for _, n := range []int{16, 64, 160, 320, 512} { // from 512 on on several cores
			flops := 2 * n * n * n
			many := max(1, 1<<21/flops)
			a, b := tensor.Full(s.dev, dt, 1, many, n, n), tensor.Full(s.dev, dt, 2, many, n, n)
			add(func() { tensor.MatMul(a, b, false, true) }, func(seconds float64) {
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
// Those of tables lie here and there in one that no near cache has; IndexSelect and IndexAdd pick columns.
func (s *Stopwatch) rows(measure func(name string, rows, bytes int, call func())) {
	const n, width, of = 1 << 12, 16, 1 << 16
	const bytes = n * width * 4
	list := make([]int64, n)
	for i := range list {
		list[i] = int64(i * 40503 % of) // distinct, as 40503 is odd
	}
	table, values := tensor.Zeros(s.dev, tensor.Float32, of, width), tensor.Full(s.dev, tensor.Float32, 1, n, width)
	ids, state := tensor.FromSlice(s.dev, list, n), tensor.Zeros(s.dev, tensor.Float32, of)
	u, often := tensor.Unique(ids, 0, of), tensor.Unique(tensor.FromSlice(s.dev, slices.Repeat(list[:n/16], 16), n), 0, of)
	measure("TakeRows", n, 2*bytes, func() { tensor.TakeRows(table, ids, 0) })
	const columns = 256
	some := tensor.Arange(s.dev, tensor.Int64, columns/2, columns)
	wide, narrow := tensor.Zeros(s.dev, tensor.Float32, 16, 2*columns), tensor.Full(s.dev, tensor.Float32, 1, 16, columns)
	measure("IndexSelect", 16*columns, 2*narrow.Bytes(), func() { tensor.IndexSelect(wide, 1, some) })
	measure("IndexAdd", 16*columns, 3*narrow.Bytes(), func() { tensor.IndexAddTo(wide, 1, some, narrow) })
	few := tensor.Narrow(ids, 0, 0, n/4)
	measure("Unique", n/4, 8*8*n/4, func() { tensor.Unique(few, 0, of) })
	const samples, features = 512, 32
	slots, places := make([]int32, samples), make([]int64, of)
	for i := range slots {
		slots[i] = int32(list[i])
	}
	measure("List", samples*features, 2*8*samples*features, func() { // as a lookup of one id a feature makes one
		l := index.New[int64](s.dev, samples*features)
		for f := range features {
			for i, slot := range slots {
				l.Elems[i*features+f] = places[slot]
			}
		}
	})
	measure("SumSegments", n, 2*bytes, func() { often.SumRows(values) })
	measure("AdagradRows", n, 4*bytes, func() {
		tensor.Adagrad{LR: 1e-3, Eps: 1e-10}.StepRows(table, tensor.Rows{Index: u.Index, Values: values}, state)
	})
}
