package metrics_test

import (
	"context"
	"fmt"
	"os"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/mem"
	"github.com/gorun-spmd/gorun/metrics"
)

// Means over all ranks, here of a world of one, and a line of them.
func ExampleMeans() {
	world := comm.NewWorld(mem.Open(1)[0])
	var means metrics.Means
	for _, batch := range []struct{ loss, lines float64 }{{2, 30}, {1, 10}} {
		means.Add("loss", batch.loss, batch.lines)
		means.Add("lines", batch.lines, 1)
	}
	values, err := means.Reduce(context.Background(), world)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := metrics.NewConsole(os.Stdout).Write(100, values...); err != nil {
		fmt.Println(err)
	}
	// Output: step 100  loss 1.75  lines 20
}

func ExampleAUC() {
	auc, ok := metrics.AUC([]float32{0.1, 0.4, 0.35, 0.8}, []float32{0, 0, 1, 1})
	fmt.Println(auc, ok)
	// Output: 0.75 true
}

// Two of four things were bought, of which the model puts one second.
func ExampleNDCG() {
	scores, bought := []float32{0.9, 0.8, 0.2, 0.1}, []float32{0, 1, 1, 0}
	ndcg, _ := metrics.NDCG(scores, bought, 2)
	recall, _ := metrics.RecallAt(2, scores, bought)
	fmt.Printf("%.3f %v\n", ndcg, recall)
	// Output: 0.387 0.5
}
