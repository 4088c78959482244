// Command train is the main job: it trains a small language model on real text,
// sharded over all ranks, and says how good it got.
//
//	gorun -np 4 ./examples/train                     the Go standard library, 4-way tensor parallel
//	gorun -np 4 ./examples/train -dp 2 -tp 2         two replicas of a model on two ranks each
//	gorun -np 2 ./examples/train -data notes/ -tied  any other text
//
// Three minutes on two cores are few for a network. So it begins with what counting tells: its
// logits are added to those of a 4-gram model of four fifths of the text, and it learns, from the
// rest, what four tokens do not say.
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
	"runtime/debug"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/data"
	"github.com/gorun-spmd/gorun/data/corpus"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/metrics/progress"
	"github.com/gorun-spmd/gorun/runtime"
	"github.com/gorun-spmd/gorun/train"
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
	if err := useFaulty(world); err != nil {
		return err
	}
	mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: o.dp}, dtensor.Axis{Name: "tp", Size: o.tp})
	if err != nil {
		return err
	}
	say := train.Say(world)
	text, err := load(ctx, world, o, say)
	if err != nil {
		return err
	}
	if o.ngram == 0 {
		o.ngram = 1
		if len(text.Train) >= manyTokens {
			o.ngram = 4
		}
	}
	model, err := newModel(ctx, mesh, o, text.Tokenizer.VocabSize())
	if err != nil {
		return err
	}
	learn := text.Train
	if o.ngram > 1 {
		start := time.Now()
		learn = text.Part(learnEvery)
		if err := model.startFrom(ctx, world, func() []int32 { return text.Rest(learnEvery) }, o.ngram); err != nil {
			return err
		}
		say("counts: %d-grams of %s tokens, with which the network begins; it trains on the other %s (%s)", o.ngram,
			progress.Count(float64(len(text.Train)-len(learn))), progress.Count(float64(len(learn))), progress.Duration(time.Since(start)))
	}
	say("model: %s parameters, %d layers of %d features, %d tokens in context, mesh %v",
		progress.Count(float64(model.count())), o.layers, o.width, o.context, mesh)

	t, err := newTrainer(mesh, model, text, learn, o)
	if err != nil {
		return err
	}
	debug.FreeOSMemory() // what preparing the text took
	if err := t.run.Do(ctx, world, say); err != nil {
		return err
	}
	return report(ctx, world, t, say)
}

// learnEvery says which documents the network trains on, every one of so many, where n-grams are counted in the others.
const learnEvery = 5

// manyTokens is how many tokens a text has that is worth to count n-grams in.
const manyTokens = 1_000_000

// load has rank 0 prepare the text and hands it to the others.
func load(ctx context.Context, world *comm.Comm, o *options, say func(string, ...any)) (*corpus.Dataset, error) {
	start := time.Now()
	packed, err := data.ShareKept(ctx, world, "text", func() ([]byte, error) {
		text, err := corpus.Prepare(corpus.PrepareOptions{Corpus: o.corpus, VocabSize: o.vocab,
			Warn: func(text string) { say("%s", text) }})
		if err != nil {
			return nil, err
		}
		say("text: %s, %s tokens to train, %s held out, vocabulary %d (%s)", text.Source, progress.Count(float64(len(text.Train))),
			progress.Count(float64(len(text.HeldOut))), text.Tokenizer.VocabSize(), progress.Duration(time.Since(start)))
		return text.MarshalBinary()
	})
	if err != nil {
		return nil, err
	}
	return corpus.Parse(packed)
}
