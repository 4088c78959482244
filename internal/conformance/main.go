// Conformance runs case files on the ranks it is started with:
//
//	gorun -np 4 ./internal/conformance [-json] [-resize] [-bfloat16] [-device cuda] PATH…
//
// A path is a .jsonl file or a folder of them. Every case whose mesh has as
// many ranks as the world is run and compared on each rank; -resize also runs
// the cases of one axis on a mesh of all ranks, and -bfloat16 those of operators
// that take bfloat16 in it besides. Each failure is a line, and the last line counts: "N
// passed, N failed". The exit code is 1 if any failed, or if there was no case at all.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/conformance/suite"
	"github.com/gorun-spmd/gorun/runtime"
)

func main() { runtime.Main(run) }

func run(ctx context.Context, world *comm.Comm) error {
	asJSON := flag.Bool("json", false, "print one JSON object for each case")
	resize := flag.Bool("resize", false, "also run the cases of one axis, made for other numbers of ranks, on this one")
	half := flag.Bool("bfloat16", false, "also run the cases of operators that take bfloat16 in it")
	device := flag.String("device", "auto", "where the tensors live: cpu, cuda, cuda:0 or auto, as runtime.UseDevice takes it")
	flag.Parse()
	if err := runtime.UseDevice(ctx, *device); err != nil {
		return err
	}
	if flag.NArg() == 0 {
		return errors.New("conformance: no path; give .jsonl files or folders of them")
	}
	var cases []*suite.Case
	for _, path := range flag.Args() {
		more, err := suite.Load(path)
		if err != nil {
			return err
		}
		for _, c := range more {
			if c.Mesh.Size() != world.Size() {
				r, ok := c.Resize(world.Size())
				if !ok || !*resize {
					continue
				}
				c = r
			}
			cases = append(cases, c)
			if h, ok := c.Half(); ok && *half {
				cases = append(cases, h)
			}
		}
	}
	if len(cases) == 0 {
		return fmt.Errorf("conformance: no case in %v has a mesh of %d ranks; try another -np, or -resize", flag.Args(), world.Size())
	}

	runner := suite.NewRunner(world)
	failed := 0
	for _, c := range cases {
		result, err := runner.Run(ctx, c)
		if err != nil {
			return err
		}
		if !result.Passed() {
			failed++
		}
		if world.Rank() == 0 {
			report(c, result, *asJSON)
		}
	}
	if world.Rank() != 0 { // an error of another rank could end rank 0 before its last report
		return nil
	}
	fmt.Printf("%d passed, %d failed\n", len(cases)-failed, failed)
	if failed > 0 {
		return fmt.Errorf("conformance: %d of %d cases failed", failed, len(cases))
	}
	return nil
}

func report(c *suite.Case, result suite.Result, asJSON bool) {
	switch {
	case asJSON:
		line := struct {
			Name   string `json:"name"`
			Op     string `json:"op"`
			Passed bool   `json:"passed"`
			Rank   int    `json:"rank,omitempty"`
			Error  string `json:"error,omitempty"`
		}{c.Name, c.Op, result.Passed(), result.Rank, result.Text}
		if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	case !result.Passed():
		fmt.Printf("%s: rank %d: %s\n", c.Name, result.Rank, result.Text)
	}
}
