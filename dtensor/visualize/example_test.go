package visualize_test

import (
	"fmt"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/dtensor/visualize"
)

// Five rows over two ranks, and once more over two others.
func ExampleLayout() {
	axes, err := layout.NewAxes(layout.Axis{Name: "dp", Size: 2}, layout.Axis{Name: "tp", Size: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	l, err := layout.New(axes, []int{5, 16}, layout.Replicate(), layout.Shard(0))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(visualize.Layout(l, nil))
	// Output:
	// [5, 16] R,S(0) on (dp=2,tp=2)
	//
	//     │ 0:16
	// ────┼─────
	// 0:3 │ 0, 2
	// 3:5 │ 1, 3
}
