package data_test

import (
	"fmt"

	"github.com/gorun-spmd/gorun/data"
)

// Each epoch has every record once; what a step has does not depend on the steps before it.
func ExampleOrder() {
	order, err := data.NewOrder(5, 2, 42)
	if err != nil {
		fmt.Println(err)
		return
	}
	for step := range 2 * order.Steps() {
		fmt.Println("step", step, order.Batch(step))
	}
	// Output:
	// step 0 [2 1]
	// step 1 [3 0]
	// step 2 [4]
	// step 3 [2 4]
	// step 4 [1 3]
	// step 5 [0]
}

// The next batch is loaded while this one is computed with.
func ExamplePrefetch() {
	squares := data.Prefetch(0, 2, func(step int) (int, error) { return step * step, nil })
	defer squares.Close()
	for range 4 {
		n, err := squares.Next()
		fmt.Println(n, err)
	}
	// Output:
	// 0 <nil>
	// 1 <nil>
	// 4 <nil>
	// 9 <nil>
}
