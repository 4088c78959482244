// Command train is the main job: it trains a small language model on real text,
// sharded over all ranks, and says how good it got.
//
//	gorun -np 4 ./examples/train                     the Go standard library, 4-way tensor parallel
//	gorun -np 4 ./examples/train -dp 2 -tp 2         two replicas of a model on two ranks each
//	gorun -np 2 ./examples/train -data notes/ -tied  any other text
//
// The model is a decoder-only transformer. Its token table and output head are
// divided by vocabulary, attention heads and hidden features by the same axis
// "tp"; the batch is divided by the axis "dp". A layout never changes a result:
// with one seed, every -np, -dp and -tp gives the same losses.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/examples/internal/progress"
	"github.com/gorun-spmd/gorun/examples/train/internal/dataset"
	"github.com/gorun-spmd/gorun/runtime"
)

func main() { runtime.Main(run) }

// run runs once on every rank; an error on any rank ends the job.
func run(ctx context.Context, world *comm.Comm) error {
	o, err := parse(os.Args[1:], world.Size())
	if err != nil {
		return err
	}
	if o.help {
		if world.Rank() == 0 {
			fmt.Print(usage())
		}
		return nil
	}
	if err := o.keep.Ready(runtime.Attempt(ctx) > 0); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	if world.Rank() == 0 {
		if err := o.tryPlot(); err != nil {
			return fmt.Errorf("train: %w", err)
		}
	}
	if err := runtime.UseDevice(ctx, o.device); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: o.dp}, dtensor.Axis{Name: "tp", Size: o.tp})
	if err != nil {
		return err
	}
	say := quiet
	if world.Rank() == 0 {
		say = func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	}
	data, err := load(ctx, world, o, say)
	if err != nil {
		return err
	}
	model, err := newModel(ctx, mesh, o, data.Tokenizer.VocabSize())
	if err != nil {
		return err
	}
	say("model: %s parameters, %d layers of %d features, %d tokens in context, mesh %v",
		progress.Count(float64(model.count())), o.layers, o.width, o.context, mesh)

	t, err := newTrainer(mesh, model, data, o)
	if err != nil {
		return err
	}
	if err := t.train(ctx, world, say); err != nil {
		return err
	}
	return report(ctx, world, t, say)
}

func quiet(string, ...any) {}

// load has rank 0 prepare the text and hands it to the others.
func load(ctx context.Context, world *comm.Comm, o *options, say func(string, ...any)) (*dataset.Dataset, error) {
	start := time.Now()
	var data *dataset.Dataset
	var packed []byte
	size := make([]int64, 1)
	if world.Rank() == 0 {
		var err error
		data, err = dataset.Prepare(dataset.Options{Corpus: o.corpus, VocabSize: o.vocab,
			Warn: func(text string) { say("%s", text) }})
		if err != nil {
			return nil, err
		}
		if packed, err = data.MarshalBinary(); err != nil {
			return nil, err
		}
		size[0] = int64(len(packed))
		say("text: %s, %s tokens to train, %s held out, vocabulary %d (%s)", data.Source, progress.Count(float64(len(data.Train))),
			progress.Count(float64(len(data.HeldOut))), data.Tokenizer.VocabSize(), progress.Duration(time.Since(start)))
	}
	if err := comm.Broadcast(ctx, world, size, 0); err != nil {
		return nil, err
	}
	if world.Rank() != 0 {
		packed = make([]byte, size[0])
	}
	if err := comm.Broadcast(ctx, world, packed, 0); err != nil {
		return nil, err
	}
	if world.Rank() == 0 {
		return data, nil
	}
	return dataset.Parse(packed)
}
