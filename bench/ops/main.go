// Command ops measures the cost of one small operator beside its arithmetic:
// looking up its rule, memory, the tape.
//
//	gorun -np 2 ./bench/ops            a table
//	gorun -np 2 ./bench/ops -json      a line of JSON for each case
//
// A call is a batch of operators inside one dtensor.Try or ValueAndGrad.
// "op_ns" is its median time divided by the number of operators, and "allocs" how many
// objects of Go's heap an operator makes. "with gradients" counts forward and
// backward: one operator is an addition and its gradient.
package main

import (
	goruntime "runtime"

	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/tensor"
)

func main() { measure.Main(func(b *measure.Bench) error { return run(b, 1000) }) }

// run measures batches of n operators on tensors of [8, 8].
func run(b *measure.Bench, n int) error {
	R, P, S := layout.Replicate(), layout.Partial(layout.Sum), layout.Shard
	of := func(seed uint64, p layout.Placement) *dtensor.Tensor {
		return dtensor.Normal(b.Mesh, dtensor.Key{Seed: seed}, 0, 1, []int{8, 8}, p)
	}
	x, y, whole := of(1, S(0)), of(2, S(0)), of(3, R) // [8, 8]
	partial := of(4, R).Redistribute(P)
	local := tensor.Clone(x.Local())
	ids := dtensor.Distribute(b.Mesh, tensor.FromSlice(b.Mesh.Device(), []int64{3, 60, 17, 42, 8, 31, 25, 50}, 8), R)
	rows := dtensor.Normal(b.Mesh, dtensor.Key{Seed: 5}, 0, 1, []int{64, 8}, S(0))
	columns := rows.Redistribute(S(1))

	adds := func() *dtensor.Tensor { // x + n·y
		t := x
		for range n {
			t = t.Add(y)
		}
		return t
	}
	if err := batch(b, "add", n, adds); err != nil {
		return err
	}
	sum := func() *dtensor.Tensor { return adds().Sum(nil, false) }
	if err := gradients(b, "add with gradients", n, sum, x); err != nil {
		return err
	}
	if err := gradients(b, "add with both gradients", n, sum, x, y); err != nil {
		return err
	}
	for _, c := range []struct {
		name string
		op   func() *dtensor.Tensor
	}{
		{"gelu", func() *dtensor.Tensor { return x.Gelu() }},
		{"matmul", func() *dtensor.Tensor { return whole.MatMul(whole) }},
		{"linear column-wise", func() *dtensor.Tensor { return whole.Linear(x, nil) }},
		{"from local", func() *dtensor.Tensor {
			t, err := dtensor.FromLocal(b.Mesh, local, []int{8, 8}, S(0))
			if err != nil {
				return nil
			}
			return t
		}},
		{"lookup column-wise", func() *dtensor.Tensor { return embedding.Lookup(columns, ids, embedding.Options{}) }},
		{"lookup row-wise, reduced", func() *dtensor.Tensor { return embedding.Lookup(rows, ids, embedding.Options{}).Reduced() }},
		{"redistribute R to S(0)", func() *dtensor.Tensor { return whole.Redistribute(S(0)) }},
		{"redistribute S(0) to R", func() *dtensor.Tensor { return x.Redistribute(R) }},
		{"redistribute P to R", func() *dtensor.Tensor { return partial.Redistribute(R) }},
		{"redistribute S(0) to S(1)", func() *dtensor.Tensor { return x.Redistribute(S(1)) }},
	} {
		if err := repeat(b, c.name, n/10, c.op); err != nil {
			return err
		}
	}
	numbers := tensor.Zeros(b.Mesh.Device(), tensor.Float32, 64)
	defer goruntime.KeepAlive(numbers)
	buf := tensor.Data[float32](numbers)
	return b.CaseErr("all_reduce 256 B", func() error {
		for range n / 10 {
			if err := comm.AllReduce(b.Context(), b.World, buf, comm.Sum); err != nil {
				return err
			}
		}
		return nil
	}, func(t measure.Timing) []measure.Field {
		return []measure.Field{{Name: "op_ns", Value: t.NS / float64(n/10)}}
	})
}

// repeat measures a batch of n times the same operator, without gradients.
func repeat(b *measure.Bench, name string, n int, op func() *dtensor.Tensor) error {
	return batch(b, name, n, func() (t *dtensor.Tensor) {
		for range n {
			t = op()
		}
		return t
	})
}

// batch measures n operators without gradients.
func batch(b *measure.Bench, name string, n int, run func() *dtensor.Tensor) error {
	call := func() { run() }
	return b.Case(name, call, func(t measure.Timing) []measure.Field {
		return figures(t, n, func() { _ = dtensor.Try(b.Context(), b.Mesh, call) })
	})
}

// gradients measures n operators with the gradients by params.
func gradients(b *measure.Bench, name string, n int, f func() *dtensor.Tensor, params ...*dtensor.Tensor) error {
	call := func() error {
		_, _, err := dtensor.ValueAndGrad(b.Context(), f, params...)
		return err
	}
	return b.CaseErr(name, call, func(t measure.Timing) []measure.Field {
		return figures(t, n, func() { _ = call() })
	})
}

// figures returns the time and the objects of one operator. It makes one more call to count
// objects; if that failed, the calls before would have failed too.
func figures(t measure.Timing, n int, call func()) []measure.Field {
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	call()
	goruntime.ReadMemStats(&after)
	return []measure.Field{
		{Name: "op_ns", Value: t.NS / float64(n)},
		{Name: "allocs", Value: float64(after.Mallocs-before.Mallocs) / float64(n)},
	}
}
