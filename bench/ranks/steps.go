package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/mem"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

// The model whose steps ranks make that are goroutines of one process.
const (
	vocabulary = 1024
	positions  = 8
	width      = 32
	heads      = 4
	tensorAxis = 4 // ranks that divide the model; the others divide the batch, of which each has one sequence
	stepsTimed = 5
)

// A stepResult is one line of the output of -goroutines.
type stepResult struct {
	Ranks  int     `json:"goroutines"`
	Step   float64 `json:"step_s"`
	Memory float64 `json:"rss_mb"`
	Loss   float64 `json:"loss"`
}

// runSteps measures steps of the numbers of goroutine ranks in sizes, each in a process of its own, and prints a line for each.
func runSteps(sizes []string, asJSON bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if !asJSON {
		fmt.Println("goroutine ranks  step, s  RSS, MB  loss")
	}
	for _, size := range sizes {
		cmd := exec.Command(self, asRank, "steps", size)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%s goroutine ranks: %w", size, err)
		}
		var r stepResult
		if err := json.Unmarshal(out, &r); err != nil {
			return fmt.Errorf("%s goroutine ranks: %w: %s", size, err, out)
		}
		if asJSON {
			_, err = os.Stdout.Write(out)
		} else {
			_, err = fmt.Printf("%15d  %7.2f  %7.0f  %.4f\n", r.Ranks, r.Step, r.Memory, r.Loss)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// measureSteps is the program of a process whose goroutines are the ranks; it prints the result.
func measureSteps(ctx context.Context, world *comm.Comm, size string) error {
	n, err := strconv.Atoi(size)
	if err != nil || n < tensorAxis || n%tensorAxis != 0 {
		return fmt.Errorf("%q goroutine ranks; give a multiple of %d", size, tensorAxis)
	}
	r := stepResult{Ranks: n}
	if err := mem.Run(ctx, world, n, func(ctx context.Context, world *comm.Comm) error {
		losses, least, err := steps(ctx, world, tensorAxis, n/tensorAxis, stepsTimed)
		if world.Rank() == 0 && err == nil {
			r.Step, r.Loss = least.Seconds(), losses[len(losses)-1]
		}
		return err
	}); err != nil {
		return err
	}
	most, err := measure.ProcessBytes("status", "VmHWM")
	if err != nil {
		return err
	}
	r.Memory = float64(most) / 1e6
	return json.NewEncoder(os.Stdout).Encode(r)
}

// steps trains a row-wise table, a block of a transformer and a head divided by classes, with clipping and AdamW, on a mesh (dp, tp) with a
// batch of so many sequences. It returns the losses, and the time of the fastest step.
func steps(ctx context.Context, world *comm.Comm, tp, batch, n int) (losses []float64, least time.Duration, err error) {
	mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: world.Size() / tp}, dtensor.Axis{Name: "tp", Size: tp})
	if err != nil {
		return nil, 0, err
	}
	init := nn.NewInit(mesh, 1)
	rows := embedding.Config{Rows: vocabulary, Dim: width, Layout: embedding.RowWise("tp"), Std: 0.02}
	table, head := nn.NewEmbedding(init, rows), nn.NewEmbedding(init, rows)
	block := nn.NewBlock(init, nn.BlockConfig{Width: width, Heads: heads, Activation: (*dtensor.Tensor).Gelu, TensorAxis: "tp"})
	params := nn.Tensors(nn.Join([]string{"table", "block", "head"}, table, block, head))
	opt := optim.NewAdamW(params, optim.AdamWConfig{})
	each := batch / mesh.Axes()[0].Size * positions       // a rank makes those of its sequences alone
	numbers := func(first int) (*dtensor.Tensor, error) { // [B, T] S(0),R
		ids := make([]int64, each)
		for i := range ids {
			k := mesh.Coord()[0]*each + i
			ids[i] = int64((k*k + first) % vocabulary)
		}
		local := tensor.FromSlice(mesh.Device(), ids, each/positions, positions)
		return dtensor.FromLocal(mesh, local, []int{batch, positions}, layout.Shard(0), layout.Replicate())
	}
	ids, err := numbers(0)
	if err != nil {
		return nil, 0, err
	}
	targets, err := numbers(1)
	if err != nil {
		return nil, 0, err
	}
	targets = targets.Flatten(0, 1)
	for step := range n {
		start := time.Now()
		value, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			h := table.Lookup(ids).Redistribute(layout.Shard(0), layout.Replicate())
			logits := block.Forward(h).Linear(head.Weight(), nil).Flatten(0, 1) // [B·T, V] S(0),S(1)
			return loss.CrossEntropy(logits, targets, loss.Options{})
		}, params...)
		if err != nil {
			return nil, 0, err
		}
		if _, err := optim.ClipGradNorm(ctx, params, grads, 1); err != nil {
			return nil, 0, err
		}
		if err := opt.Step(grads, 0.01); err != nil {
			return nil, 0, err
		}
		if took := time.Since(start); step == 0 || took < least {
			least = took
		}
		losses = append(losses, value.Item())
	}
	return losses, least, nil
}
