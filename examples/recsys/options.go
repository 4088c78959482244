package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/train"
)

// options are the command line.
type options struct {
	help, json bool

	data, generate string
	strict         bool
	rows           int

	dp, tp int    // sizes of the mesh axes
	device string // as runtime.UseDevice takes it

	bottom    widths  // of the layers between the counts and dim
	top       widths  // of the layers between the products and the logit
	dim       int     // features of a table's rows
	tableRows int     // of a table, at most
	measure   bool    // tables are planned for this machine's rates, not for embedding.TypicalRates
	memory    float64 // megabytes of tables on a rank, 0: no limit
	dynamic   float64 // megabytes of one table of keys on all ranks of tp, 0: 26 tables of rows
	bfloat16  bool    // of tables and networks, float32 without
	store     string  // the folder that the large tables are in, "": all are in memory
	cache     float64 // megabytes of their rows that are in memory, on all ranks

	seed      uint64
	batch     int // lines in a step, over all ranks
	micro     int // micro-batches in a step
	steps     int // 0: as epochs says
	epochs    int
	rate      float64
	tableRate float64
	apart     bool // tables are changed after the backward pass, not in it

	metrics string
	keep    train.Keep
}

// invented is how many lines there are without -data.
const invented = 300_000

// flags declares the command line, with its defaults, into o.
func flags(o *options) *flag.FlagSet {
	f := flag.NewFlagSet("recsys", flag.ContinueOnError)
	f.SetOutput(io.Discard) // an error is returned and printed once
	f.StringVar(&o.data, "data", "", "train on the log in `PATH`, in Criteo's format: a file, through gzip if it ends in .gz, or a folder "+
		"with train.txt or day_0, day_1, … (default: an invented one)")
	f.StringVar(&o.generate, "generate", "", "write the invented log of -rows lines to `FILE` and do nothing else")
	f.BoolVar(&o.strict, "strict", false, "end at the first malformed line of -data")
	f.IntVar(&o.rows, "rows", 0, fmt.Sprintf("lines to read, of several days in equal parts, or to invent "+
		"(default: all of -data, %d without)", invented))
	f.IntVar(&o.dp, "dp", 0, "ranks that have copies of the tables (default: what -tp leaves over)")
	f.IntVar(&o.tp, "tp", 0, "ranks that divide the tables (default: what -dp leaves over)")
	f.StringVar(&o.device, "device", "auto", "where tensors live: cpu, cuda, cuda:0, or auto: what gorun --gpus says, else the CPU")
	o.bottom, o.top = widths{64, 32}, widths{128, 64}
	f.Var(&o.bottom, "bottom", "`WIDTHS` of the layers that the counts go through, before one of -dim")
	f.Var(&o.top, "top", "`WIDTHS` of the layers that the products go through, before the logit")
	f.IntVar(&o.dim, "dim", 16, "features of a table's rows")
	f.IntVar(&o.tableRows, "table-rows", 1<<20, "rows of a table, at most; rare values share rows if there are more")
	f.BoolVar(&o.bfloat16, "bfloat16", false, "keep parameters, activations and gradients in bfloat16")
	f.Float64Var(&o.memory, "memory", 0, "megabytes that the tables of a rank may take, at most (default: no limit)")
	f.BoolVar(&o.measure, "measure", false, "plan where tables lie by what this machine takes, measured now; another run may then place them "+
		"otherwise, and its last bits differ")
	f.Float64Var(&o.dynamic, "dynamic", 0, "look raw ids up in one table of keys, whose rows take `MB` megabytes together and come and go "+
		"(default: a table of rows for each category)")
	f.StringVar(&o.store, "store", "", "keep the rows of the largest tables in files in `DIR`, on a disk of each rank's host, which may be "+
		"larger than memory (default: all tables are in memory)")
	f.Float64Var(&o.cache, "cache", 64, "with -store, megabytes of rows that are in memory, on all ranks together: tables that fit in it, "+
		"from the smallest on, and the most used rows of the others")
	f.Uint64Var(&o.seed, "seed", 1, "of the invented log, parameters and batches")
	f.IntVar(&o.batch, "batch", 512, "lines in a step, over all ranks")
	f.IntVar(&o.micro, "micro", 1, "micro-batches in which a step is computed, one after another: less memory; the tables are changed as "+
		"with -unfused")
	f.IntVar(&o.steps, "steps", 0, "end after so many steps (default: what -epochs says)")
	f.IntVar(&o.epochs, "epochs", 1, "times to see each line")
	f.Float64Var(&o.rate, "lr", 2e-3, "learning rate of the networks (AdamW)")
	f.Float64Var(&o.tableRate, "table-lr", 0.05, "learning rate of the tables (row-wise Adagrad)")
	f.BoolVar(&o.apart, "unfused", false, "change the tables after the backward pass, not in it; the result is the same")
	o.keep.Flags(f, 100, "-np, -dp, -tp and -memory")
	f.StringVar(&o.metrics, "metrics", "", "write the loss of each step to `PATH`: .jsonl, .csv, or a folder of TensorBoard's files")
	f.BoolVar(&o.json, "json", false, "print one JSON object at the end")
	return f
}

// usage describes the command line.
func usage() string {
	return train.Usage("usage: gorun -np N ./examples/recsys [flags]\n\nTrains a click model, its tables spread over N ranks.\n\n",
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
		return nil, fmt.Errorf("recsys: %w; -h lists the flags", err)
	}
	if err := o.check(f, size); err != nil {
		return nil, fmt.Errorf("recsys: %w", err)
	}
	return o, nil
}

// check checks the flags, and completes them.
func (o *options) check(f *flag.FlagSet, size int) error {
	if f.NArg() > 0 {
		return fmt.Errorf("%q is no flag; -data names the log, -h lists the flags", f.Arg(0))
	}
	if err := train.Positive(f, "dim", "table-rows", "batch", "micro", "epochs", "lr", "table-lr", "cache"); err != nil {
		return err
	}
	switch {
	case o.rows < 0:
		return fmt.Errorf("-rows %d: give at least 1, or 0 for all", o.rows)
	case o.batch%o.micro != 0:
		return fmt.Errorf("-micro %d does not divide -batch %d; change one of them", o.micro, o.batch)
	case o.micro > 1 && o.dynamic > 0:
		return errors.New("-micro sums gradients of rows and rows of -dynamic come and go between micro-batches; give one of them")
	case o.micro > 1 && o.store != "":
		return errors.New("-micro changes tables after the backward pass, and those of a -store are changed in it; give one of them")
	case o.steps < 0:
		return fmt.Errorf("-steps %d: give at least 1, or 0 for -epochs", o.steps)
	case !(o.memory >= 0 && o.memory < 1e9):
		return fmt.Errorf("-memory %v: give a positive number of megabytes, or 0 for no limit", o.memory)
	case !(o.dynamic >= 0 && o.dynamic < 1e9):
		return fmt.Errorf("-dynamic %v: give a positive number of megabytes, or 0 for tables of rows", o.dynamic)
	case o.dynamic > 0 && o.memory > 0:
		return errors.New("-memory is for tables of rows and -dynamic says how much a table of keys has; give one of them")
	case o.cache > 1e9:
		return fmt.Errorf("-cache %v: give at most 1e9 megabytes", o.cache)
	case o.store != "" && o.dynamic > 0:
		return errors.New("-store keeps tables of rows on disks and -dynamic has one of keys; give one of them")
	case o.store != "" && o.apart:
		return errors.New("-unfused changes tables after the backward pass, and those of a -store are changed in it; give one of them")
	case o.strict && o.data == "":
		return errors.New("-strict is about the lines of -data; give it")
	case o.generate != "" && o.data != "":
		return errors.New("-generate writes a log and -data reads one; give one of them")
	}
	o.apart = o.apart || o.micro > 1 // in the backward pass each micro-batch would be a step
	if o.rows == 0 && o.data == "" {
		o.rows = invented
	}
	if err := o.keep.Check(); err != nil {
		return err
	}
	var err error
	o.dp, o.tp, err = train.Mesh(o.dp, o.tp, size)
	return err
}

// dtype is the type of tables and networks.
func (o *options) dtype() tensor.DType {
	if o.bfloat16 {
		return tensor.BFloat16
	}
	return tensor.Float32
}

// source names the log.
func (o *options) source() string {
	if o.data != "" {
		return o.data
	}
	return "the invented log"
}

// widths are numbers of features, "64,32" on the command line; there may be none.
type widths []int

func (w *widths) String() string {
	return strings.Join(strings.Fields(strings.Trim(fmt.Sprint([]int(*w)), "[]")), ",")
}

func (w *widths) Set(text string) error {
	*w = nil
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if text != "" && (err != nil || n < 1) {
			return fmt.Errorf("%q is no width; give positive numbers with commas between them", part)
		}
		if text != "" {
			*w = append(*w, n)
		}
	}
	return nil
}
