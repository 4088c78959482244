// Command gpt2 loads a model in Hugging Face's layout, GPT-2's, Llama's or Qwen3's, over any number
// of ranks, continues texts with it, and trains it further.
//
//	gorun -np 2 ./examples/gpt2 -model DIR -prompt "The dog" -n 20
//	gorun -np 4 ./examples/gpt2 -model DIR -train notes.txt -steps 100 -dp 2 -sequence -out NEW
//
// DIR has config.json, tokenizer.json (or vocab.json and merges.txt), and model.safetensors
// or several files with an index. Each rank reads what its shards need: attention heads,
// hidden features and the vocabulary are divided over the axis "tp", a batch over "dp". NEW
// gets the trained model in the same layout. Without a tokenizer texts are token ids, separated by commas or white space.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/runtime"
	"github.com/gorun-spmd/gorun/train"
)

func main() { runtime.Main(run) }

type options struct {
	help                     string // what to print instead of working
	model, prompt, text, out string
	ids                      bool // texts are token ids
	n, dp                    int
	sequence                 bool
	sampling                 sampling
	tuning                   tuning
}

func parse(args []string) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("gpt2", flag.ContinueOnError)
	f.StringVar(&o.model, "model", "", "`folder` of the model")
	f.StringVar(&o.prompt, "prompt", "", "continue this `text`")
	f.BoolVar(&o.ids, "ids", false, "texts are token ids, such as 464,3290")
	f.IntVar(&o.n, "n", 20, "by so many tokens")
	f.Float64Var(&o.sampling.temperature, "temperature", 0, "of the choice among tokens; 0: the likeliest one")
	f.IntVar(&o.sampling.topK, "top-k", 0, "choose among so many of the likeliest; 0: among all")
	f.Float64Var(&o.sampling.topP, "top-p", 0, "choose among the likeliest that have this probability together; 0: among all")
	f.Uint64Var(&o.sampling.seed, "seed", 1, "of all random choices")
	f.BoolVar(&o.sampling.recompute, "no-cache", false, "compute every token with the whole text")
	f.StringVar(&o.text, "train", "", "train on the text in this `file`")
	f.IntVar(&o.tuning.steps, "steps", 100, "of the training")
	f.IntVar(&o.tuning.batch, "batch", 8, "windows a step")
	f.IntVar(&o.tuning.context, "context", 64, "tokens of a window")
	f.Float64Var(&o.tuning.rate, "lr", 1e-4, "peak learning rate")
	f.IntVar(&o.dp, "dp", 1, "divide the batch over so many ranks; the others divide the model")
	f.BoolVar(&o.sequence, "sequence", false, "divide activations by position too (sequence parallelism)")
	f.StringVar(&o.out, "out", "", "write the model into this new `folder`")
	f.SetOutput(io.Discard) // every rank would print
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return &options{help: train.Usage("usage: gorun -np N ./examples/gpt2 -model DIR [flags]\n\n"+
			"Continues texts with a GPT-2, Llama or Qwen model, or trains it further.\n\n", f)}, nil
	case err != nil:
		return nil, fmt.Errorf("gpt2: %w; -h lists the flags", err)
	}
	if o.model == "" || o.prompt == "" && o.text == "" && o.out == "" {
		return nil, fmt.Errorf("gpt2: give -model, and one of -prompt, -train and -out")
	}
	o.tuning.seed = o.sampling.seed
	return o, nil
}

// run runs once on every rank.
func run(ctx context.Context, world *comm.Comm) error {
	o, err := parse(os.Args[1:])
	if err != nil {
		return err
	}
	say := func(format string, args ...any) {
		if world.Rank() == 0 {
			fmt.Printf(format+"\n", args...)
		}
	}
	if o.help != "" {
		say("%s", strings.TrimSuffix(o.help, "\n"))
		return nil
	}
	mesh, err := train.NewMesh(world, o.dp, 0)
	if err != nil {
		return err
	}
	c, err := readConfig(o.model)
	if err != nil {
		return err
	}
	m, err := newModel(ctx, mesh, c, o.sequence)
	if err != nil {
		return err
	}
	if err := m.load(ctx, world, o.model); err != nil {
		return err
	}
	say("%v", m)
	texts, err := newTexts(o)
	if err != nil {
		return err
	}
	if o.text != "" {
		text, err := os.ReadFile(o.text)
		if err != nil {
			return err
		}
		if o.tuning.tokens, err = texts.encode(string(text)); err != nil {
			return err
		}
		o.tuning.report = func(step int, loss float64) { say("step %d: loss %.4f", step, loss) }
		if err := m.finetune(ctx, o.tuning); err != nil {
			return err
		}
	}
	if o.prompt != "" {
		prompt, err := texts.encode(o.prompt)
		if err != nil {
			return err
		}
		next, err := m.generate(ctx, texts.begin(prompt), o.n, o.sampling)
		if err != nil {
			return err
		}
		say("%s", texts.decode(next))
	}
	if o.out == "" {
		return nil
	}
	if err := m.export(ctx, world, o.out); err != nil {
		return err
	}
	if world.Rank() == 0 {
		return copyAround(o.model, o.out)
	}
	return nil
}

// copyAround copies what belongs to a model besides its tensors.
func copyAround(from, to string) error {
	for _, pattern := range []string{"*.json", "*.txt", "*.model"} {
		names, err := filepath.Glob(filepath.Join(from, pattern))
		if err != nil {
			return err
		}
		for _, name := range names {
			if strings.HasSuffix(name, ".index.json") {
				continue // of the files that were there
			}
			text, err := os.ReadFile(name)
			if err == nil {
				err = os.WriteFile(filepath.Join(to, filepath.Base(name)), text, 0o666)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
