// Command gpu measures kernels of tensor/cuda on an NVIDIA GPU, each beside a copy
// within the device, and beside PyTorch where python3 has it with CUDA.
//
//	gorun -np 1 ./bench/gpu                a table
//	gorun -np 1 ./bench/gpu -json          a line of JSON for each kernel
//	gorun -np 1 ./bench/gpu -match '^sum'  those whose names match, and the copy
//
// "gbs" counts the bytes that a kernel has to read and write, each once. "of_copy" is gbs divided
// by the rate of a copy of 1 GiB, read and written. "tflops" counts the
// multiplications and additions of products. "extra_mib" is the memory that a loss
// takes beside its arguments, gradients included. "torch_ms" is PyTorch's time for
// the same kernel, and "speedup" is that time divided by ours ("of PyTorch" in the table).
// "torch" says why there is no such time.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/runtime"
	"github.com/gorun-spmd/gorun/tensor"
)

func main() { runtime.Main(run) }

// A result is one line.
type result struct {
	Name     string  `json:"name"`
	Millis   float64 `json:"ms"`
	GBs      float64 `json:"gbs,omitempty"`
	OfCopy   float64 `json:"of_copy,omitempty"`
	Tflops   float64 `json:"tflops,omitempty"`
	ExtraMiB float64 `json:"extra_mib,omitempty"`
	TorchMS  float64 `json:"torch_ms,omitempty"`
	TorchMiB float64 `json:"torch_extra_mib,omitempty"`
	Speedup  float64 `json:"speedup,omitempty"`
	Torch    string  `json:"torch,omitempty"` // "missing"
}

func run(ctx context.Context, world *comm.Comm) error {
	asJSON := flag.Bool("json", false, "print one JSON object for each kernel")
	device := flag.String("device", "cuda", "the device, as runtime.UseDevice takes it")
	scale := flag.Int("scale", 1, "divide the sizes by this")
	python := flag.String("python", "python3", "the interpreter to look for PyTorch with; \"\" for none")
	match := flag.String("match", "", "measure the kernels whose names this regular expression matches, and the copy")
	flag.Parse()
	pattern, err := regexp.Compile(*match)
	if err != nil {
		return err
	}
	if err := runtime.UseDevice(ctx, *device); err != nil {
		return err
	}
	mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "all", Size: world.Size()})
	if err != nil {
		return err
	}
	kernels := matching(cases(ctx, mesh, *scale), pattern)
	results, err := measureAll(kernels, mesh.Device())
	if err != nil || world.Rank() != 0 {
		return err
	}
	mesh.Device().(interface{ Trim() }).Trim() // PyTorch may need the memory
	theirs, why := torch(ctx, *python, *scale, names(kernels))
	if why != "" {
		fmt.Fprintln(os.Stderr, "PyTorch is missing:", why)
	}
	for i := range results {
		results[i].beside(theirs)
	}
	return write(os.Stdout, results, *asJSON)
}

// matching returns the kernels whose names match, and the copy.
func matching(kernels []measurement, pattern *regexp.Regexp) []measurement {
	return slices.DeleteFunc(kernels, func(k measurement) bool { return k.name != copyName && !pattern.MatchString(k.name) })
}

func names(kernels []measurement) (names []string) {
	for _, k := range kernels {
		names = append(names, k.name)
	}
	return names
}

// measureAll returns a result for each kernel, compared with that of the copy.
func measureAll(kernels []measurement, dev tensor.Device) (results []result, err error) {
	wait := func() {}
	if s, ok := dev.(interface{ Sync() }); ok {
		wait = s.Sync
	}
	copyGBs := 0.0
	for _, k := range kernels {
		s := dev.Open()
		run := k.make()
		before := dev.Stats().Live
		ms, err := measure(run, wait, dev)
		r := result{Name: k.name, Millis: ms, GBs: k.bytes / ms / 1e6, Tflops: k.flops / ms / 1e9}
		if k.memory {
			r.ExtraMiB = float64(dev.Stats().HighWater-before) / (1 << 20)
		}
		s.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k.name, err)
		}
		if k.name == copyName {
			copyGBs = r.GBs
		}
		results = append(results, r)
	}
	for i := range results {
		results[i].OfCopy = results[i].GBs / copyGBs
	}
	return results, nil
}

// measure returns the shortest time of several runs, in milliseconds.
func measure(run func() error, wait func(), dev tensor.Device) (least float64, err error) {
	for i := range 8 {
		s := dev.Open()
		wait()
		start := time.Now()
		err := run()
		wait()
		ms := float64(time.Since(start).Nanoseconds()) / 1e6
		s.Close()
		if err != nil {
			return 0, err
		}
		if i > 1 && (least == 0 || ms < least) { // the first two load kernels and fill the pool
			least = ms
		}
	}
	return least, nil
}

// write prints the results.
func write(w io.Writer, results []result, asJSON bool) error {
	out := json.NewEncoder(w)
	for _, r := range results {
		if asJSON {
			if err := out.Encode(r); err != nil {
				return err
			}
			continue
		}
		speedup, torch := "-", "missing"
		if r.Torch == "" {
			speedup, torch = fmt.Sprintf("%.2f x", r.Speedup), fmt.Sprintf("%.3f ms", r.TorchMS)
		}
		fmt.Fprintf(w, "%-52s %10.3f ms %9.1f GB/s %6.2f of copy %8.2f TFLOP/s %9.0f MiB %9s of PyTorch   PyTorch %s\n", r.Name, r.Millis, r.GBs,
			r.OfCopy, r.Tflops, r.ExtraMiB, speedup, torch)
	}
	return nil
}
