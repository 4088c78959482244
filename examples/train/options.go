package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/gorun-spmd/gorun/data/corpus"
	"github.com/gorun-spmd/gorun/data/ngram"
	"github.com/gorun-spmd/gorun/train"
)

// options are the command line.
type options struct {
	help, json bool

	corpus  corpus.Options
	vocab   int
	ngram   int // tokens of the n-grams that the model starts from
	context int // tokens in a window

	device string // as runtime.UseDevice takes it
	dp, tp int    // sizes of the mesh axes

	layers, width, heads int
	tied, bfloat16       bool

	seed    uint64
	batch   int // windows in a step, over all ranks
	micro   int // micro-batches in a step
	steps   int // 0: until the time is up
	minutes float64
	rate    float64 // peak learning rate
	clip    float64

	keep train.Keep

	metrics, plot string

	prompt string
	sample int // tokens
}

// defaultMinutes leaves time to build, prepare and evaluate within three.
const defaultMinutes = 2.25

// flags declares the command line, with its defaults, into o.
func flags(o *options) *flag.FlagSet {
	f := flag.NewFlagSet("train", flag.ContinueOnError)
	f.SetOutput(io.Discard) // an error is returned and printed once
	f.Func("data", "train on the text in `PATH`, a file or a folder; may be repeated, and more may follow the flags (default: "+
		"the Go standard library)",
		func(p string) error { o.corpus.Paths = append(o.corpus.Paths, p); return nil })
	f.IntVar(&o.vocab, "vocab", 4096, "entries of the tokenizer, at most")
	f.IntVar(&o.ngram, "ngram", 0, "have the network begin with what the counts of n-grams of so many tokens say, 1: with nothing (default: "+
		"4 for a text of a million tokens and more, else 1)")
	f.IntVar(&o.context, "context", 128, "tokens in a window")
	f.StringVar(&o.device, "device", "auto", "where tensors live: cpu, cuda, cuda:0, or auto: what gorun --gpus says, else the CPU")
	f.IntVar(&o.dp, "dp", 0, "ranks that divide the batch (default: what -tp leaves over)")
	f.IntVar(&o.tp, "tp", 0, "ranks that divide the model (default: what -dp leaves over)")
	f.IntVar(&o.layers, "layers", 2, "blocks of the transformer")
	f.IntVar(&o.width, "width", 192, "features of a token")
	f.IntVar(&o.heads, "heads", 4, "attention heads, a divisor of -width")
	f.BoolVar(&o.tied, "tied", false, "use the token table as the output head")
	f.BoolVar(&o.bfloat16, "bfloat16", false, "keep parameters, activations and gradients in bfloat16")
	f.Uint64Var(&o.seed, "seed", 1, "of parameters, batches and the sample")
	f.IntVar(&o.batch, "batch", 8, "windows in a step, over all ranks")
	f.IntVar(&o.micro, "micro", 1, "micro-batches in which a step is computed, one after another: less memory")
	f.IntVar(&o.steps, "steps", 0, "end after so many steps")
	f.Float64Var(&o.minutes, "minutes", 0, fmt.Sprintf("end after so many minutes (default %v, or never if -steps is given)", defaultMinutes))
	f.Float64Var(&o.rate, "lr", 1e-3, "peak learning rate")
	f.Float64Var(&o.clip, "clip", 1, "largest norm of a step's gradients")
	o.keep.Flags(f, 100, "-np, -dp and -tp")
	f.StringVar(&o.metrics, "metrics", "", "write the loss of each step to `PATH`: .jsonl, .csv, or a folder of TensorBoard's files")
	f.StringVar(&o.plot, "plot", "train-loss.png", "write the loss curve to `FILE`, as PNG; empty: do not")
	f.StringVar(&o.prompt, "prompt", "// Package sort provides", "beginning of the text sample")
	f.IntVar(&o.sample, "sample", 120, "tokens of the text sample; 0: none")
	f.BoolVar(&o.json, "json", false, "print one JSON object at the end")
	return f
}

// usage describes the command line.
func usage() string {
	return train.Usage("usage: gorun -np N ./examples/train [flags] [PATH…]\n\nTrains a language model on text, sharded over N ranks.\n\n",
		flags(new(options)))
}

// parse reads the command line of a job of size ranks.
func parse(args []string, size int) (*options, error) {
	o := new(options)
	f := flags(o)
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return &options{help: true}, nil
	case err != nil:
		return nil, fmt.Errorf("train: %w; -h lists the flags", err)
	}
	o.corpus.Paths = append(o.corpus.Paths, f.Args()...)
	if err := o.check(f, size); err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}
	return o, nil
}

// check checks the flags, and completes them.
func (o *options) check(f *flag.FlagSet, size int) error {
	if err := train.Positive(f, "vocab", "context", "layers", "width", "heads", "batch", "micro", "lr", "clip"); err != nil {
		return err
	}
	switch {
	case o.width%o.heads != 0:
		return fmt.Errorf("-heads %d does not divide -width %d; change one of them", o.heads, o.width)
	case o.batch%o.micro != 0:
		return fmt.Errorf("-micro %d does not divide -batch %d; change one of them", o.micro, o.batch)
	case o.steps < 0:
		return fmt.Errorf("-steps %d: give at least 1, or 0 for a limit in minutes", o.steps)
	case !(o.minutes >= 0):
		return fmt.Errorf("-minutes %v: give a positive number", o.minutes)
	case o.ngram < 0 || o.ngram > ngram.MaxOrder:
		return fmt.Errorf("-ngram %d: give 1 to %d, or 0 for what the text is worth", o.ngram, ngram.MaxOrder)
	case o.sample < 0:
		return fmt.Errorf("-sample %d: give 0 or more", o.sample)
	}
	if o.steps == 0 && o.minutes == 0 {
		o.minutes = defaultMinutes
	}
	if err := o.keep.Check(); err != nil {
		return err
	}
	var err error
	o.dp, o.tp, err = train.Mesh(o.dp, o.tp, size)
	return err
}

// tryPlot returns an error if the loss curve cannot be written, before the time that
// it takes to have one. It leaves no file where there was none.
func (o *options) tryPlot() error {
	if o.plot == "" {
		return nil
	}
	_, missing := os.Lstat(o.plot)
	f, err := os.OpenFile(o.plot, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return fmt.Errorf("-plot: %w; name a file in a folder that can be written, or none", err)
	}
	err = f.Close()
	if missing != nil {
		err = errors.Join(err, os.Remove(o.plot))
	}
	return err
}

// limit is the time to train, 0 for no limit.
func (o *options) limit() time.Duration { return time.Duration(o.minutes * float64(time.Minute)) }
