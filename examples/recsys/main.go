// Command recsys trains DLRM, the recommendation model of Naumov et al. (2019,
// arXiv 1906.00091), on a log in Criteo's format, its tables spread over all ranks,
// and says how well it tells clicks it has not seen.
//
//	gorun -np 4 ./examples/recsys                    an invented log, tables divided over 4 ranks
//	gorun -np 4 ./examples/recsys -dp 2 -tp 2        two copies of the tables on two ranks each
//	gorun -np 2 ./examples/recsys -data train.txt    a log of yours, .gz too
//	gorun -np 4 ./examples/recsys -data DIR -rows 20000000           of days DIR/day_0.gz, … as much of each
//	gorun -np 4 ./examples/recsys -dynamic 64        raw ids in one table of keys, of 64 MB
//	gorun -np 4 ./examples/recsys -store DIR -cache 64               the largest tables on a disk, 64 MB of rows in memory
//	gorun -np 1 ./examples/recsys -generate log.txt  write the invented log to a file
//	gorun -np 4 --max-restarts 3 ./examples/recsys -checkpoint DIR   go on after a crash
//	gorun -np 2 ./examples/recsys -checkpoint DIR -resume            go on with another -np
//
// The 13 counts go through a small network, each of the 26 categories is a row of
// its table, and the inner products of each two of these 27 vectors go through
// another network to one logit. The batch is divided over all ranks, the tables over
// those of the axis "tp". A layout never changes a result: with one seed, every
// -np, -dp and -tp gives the same losses.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/data/criteo"
	"github.com/gorun-spmd/gorun/dtensor"
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
	say := train.Say(world)
	switch {
	case o.help:
		if world.Rank() == 0 {
			fmt.Print(usage())
		}
		return nil
	case o.generate != "":
		if world.Rank() == 0 {
			return generate(o, say)
		}
		return nil
	}
	if err := o.keep.Ready(runtime.Attempt(ctx) > 0); err != nil {
		return fmt.Errorf("recsys: %w", err)
	}
	if err := runtime.UseDevice(ctx, o.device); err != nil {
		return fmt.Errorf("recsys: %w", err)
	}
	mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: o.dp}, dtensor.Axis{Name: "tp", Size: o.tp})
	if err != nil {
		return err
	}
	data, bad, err := load(ctx, world, o, say)
	if err != nil {
		return err
	}
	t, err := newTrainer(ctx, mesh, data, o, say)
	if err != nil {
		return err
	}
	defer t.close()
	if err := t.run.Do(ctx, world, say); err != nil {
		return err
	}
	return report(ctx, world, t, bad, say)
}

// generate writes the invented log to a file.
func generate(o *options, say func(string, ...any)) error {
	f, err := os.Create(o.generate)
	if err != nil {
		return fmt.Errorf("recsys: -generate: %w", err)
	}
	err = criteo.Generate(f, o.rows, o.seed)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("recsys: -generate: %w", err)
	}
	say("%d lines in %s", o.rows, o.generate)
	return nil
}

// load reads or invents the log; bad is how many lines were malformed, on rank 0.
func load(ctx context.Context, world *comm.Comm, o *options, say func(string, ...any)) (d *criteo.Data, bad int, err error) {
	d, b, err := criteo.Load(ctx, world, o.data, criteo.Options{Rows: o.rows, Strict: o.strict || o.data == "", Seed: o.seed})
	if err != nil {
		return nil, 0, fmt.Errorf("recsys: %w", err)
	}
	if b != nil {
		tell(b, say)
		bad = b.Lines
	}
	if d.Rows() < 2 {
		return nil, 0, fmt.Errorf("recsys: %s has %d good lines and %d malformed ones; there must be some to train on and some to hold out",
			o.source(), d.Rows(), bad)
	}
	return d, bad, nil
}

// tell names malformed lines.
func tell(b *criteo.Bad, say func(string, ...any)) {
	if b.Lines == 0 {
		return
	}
	var kinds []string
	for kind, n := range b.Reasons {
		kinds = append(kinds, fmt.Sprintf("%d %s", n, kind))
	}
	slices.Sort(kinds)
	say("log: left out %d malformed lines (%s):", b.Lines, strings.Join(kinds, ", "))
	for _, line := range b.First {
		say("  %s", line)
	}
	if n := b.Lines - len(b.First); n > 0 {
		say("  and %d more", n)
	}
}
