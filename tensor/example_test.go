package tensor_test

import (
	"fmt"

	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

func Example() {
	cpu := tensor.NewCPU(nil)
	a := tensor.FromSlice(cpu, []float32{1, 2, 3, 4}, 2, 2)
	b := tensor.MatMul(a, a, false, true) // a·aᵀ
	fmt.Println(tensor.Data[float32](b))
	// Output: [5 11 11 25]
}

// A step allocates in a scope; what outlives it is kept.
func ExampleScope() {
	cpu := tensor.NewCPU(nil)
	x := tensor.FromSlice(cpu, []float64{1, 2, 3}, 3)
	step := func() *tensor.Tensor {
		s := cpu.Open()
		defer s.Close()
		squares := tensor.Mul(x, x)
		loss := tensor.Sum(squares, nil, false)
		s.Keep(loss)
		return loss
	}
	fmt.Println(step())
	// Output: float64[]{14}
}

// Two ranks make their halves of a tensor: together they are the whole, whatever
// the split.
func ExampleFillNormal() {
	cpu := tensor.NewCPU(nil)
	key := tensor.Key{Seed: 1}
	whole := tensor.New(cpu, tensor.Float32, 4, 2)
	tensor.FillNormal(whole, key, 0, 1, nil, nil)
	top, bottom := tensor.New(cpu, tensor.Float32, 1, 2), tensor.New(cpu, tensor.Float32, 3, 2)
	tensor.FillNormal(top, key, 0, 1, whole.Shape(), []int{0, 0})
	tensor.FillNormal(bottom, key, 0, 1, whole.Shape(), []int{1, 0})
	same := tensor.Compare(kernel.OpEq, whole, tensor.Cat(0, top, bottom))
	fmt.Println(tensor.All(same, nil, false))
	// Output: bool[]{true}
}

// A table held in two parts: each part looks up the rows it owns.
func ExampleTakeRows() {
	cpu := tensor.NewCPU(nil)
	lower := tensor.FromSlice(cpu, []float32{0, 10, 20}, 3, 1)  // rows 0 to 2
	upper := tensor.FromSlice(cpu, []float32{30, 40, 50}, 3, 1) // rows 3 to 5
	ids := tensor.FromSlice(cpu, []int64{4, 1, 3}, 3)
	fmt.Println(tensor.TakeRows(lower, ids, 0))
	fmt.Println(tensor.TakeRows(upper, ids, 3))
	// Output:
	// float32[3 1]{0 10 0}
	// float32[3 1]{40 0 30}
}
