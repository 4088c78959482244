package layout_test

import (
	"fmt"

	"github.com/gorun-spmd/gorun/dtensor/layout"
)

func ExampleNewPlan() {
	axes, err := layout.NewAxes(layout.Axis{Name: "data", Size: 2}, layout.Axis{Name: "model", Size: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	from, err := layout.New(axes, []int{800, 800}, layout.Partial(layout.Sum), layout.Shard(0))
	if err != nil {
		fmt.Println(err)
		return
	}
	to, err := from.With(layout.Shard(0), layout.Replicate())
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := layout.NewPlan(from, to, 4, layout.Costs{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(plan)
	// Output:
	// 1. data:       P(sum)    → S(1)     reduce-scatter
	// 2. data,model: S(1),S(0) → S(0),R   exchange
}

func ExampleContraction() {
	rule, err := layout.Contraction("linear", "...i,oi->...o", [][]int{{4, 6, 8}, {12, 8}}, []int{12})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(rule.Table("x", "weight", "bias", "result"))
	// Output:
	// x     weight  bias    result
	// R     R       R       R
	// S(0)  R       R       S(0)
	// S(1)  R       R       S(1)
	// S(2)  S(1)    P(sum)  P(sum)
	// R     S(0)    S(0)    S(2)
}
