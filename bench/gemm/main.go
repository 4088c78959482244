// Command gemm measures matrix products of float32, or of bfloat16.
//
//	go run ./bench/gemm                                  a table
//	go run ./bench/gemm -dtype bfloat16                  operands and result of bfloat16
//	go run ./bench/gemm -json                            one JSON object a line
//	go run ./bench/gemm -match linear -threads 2         some cases, two threads
//
// A case runs until -time is spent, at least three times, and the fastest run
// counts: other work on the machine can only slow a run down. gflops is
// 2·m·n·k / ns. Under gorun every rank measures, so that ranks load the machine
// as in a job, and rank 0 prints.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/gemm"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// A shape is one product to measure.
type shape struct {
	Name   string `json:"name"`
	M      int    `json:"m"`
	N      int    `json:"n"`
	K      int    `json:"k"`
	TransA bool   `json:"transA"`
	TransB bool   `json:"transB"`
}

// A result is the fastest run of a shape.
type result struct {
	shape
	GFlops  float64 `json:"gflops"`
	Ns      int64   `json:"ns"`
	Threads int     `json:"threads"`
}

var shapes = []shape{
	{"cube/8", 8, 8, 8, false, false},
	{"cube/32", 32, 32, 32, false, false},
	{"cube/64", 64, 64, 64, false, false},
	{"cube/64/nt", 64, 64, 64, false, true},
	{"cube/128", 128, 128, 128, false, false},
	{"cube/256", 256, 256, 256, false, false},
	{"cube/512", 512, 512, 512, false, false},
	{"cube/1024", 1024, 1024, 1024, false, false},
	{"cube/1024/nt", 1024, 1024, 1024, false, true},
	{"cube/1024/tn", 1024, 1024, 1024, true, false},
	{"cube/1000", 1000, 1000, 1000, false, false},
	{"cube/2048", 2048, 2048, 2048, false, false},
	{"head/forward", 2048, 32768, 256, false, false},
	{"head/dx", 2048, 256, 32768, false, true},
	{"head/dw", 256, 32768, 2048, true, false},
	{"linear/forward", 1024, 4096, 192, false, false},
	{"linear/dx", 1024, 192, 4096, false, true},
	{"linear/dw", 192, 4096, 1024, true, false},
	{"linear/nt", 1024, 4096, 192, false, true},
	{"attention/scores", 128, 128, 64, false, true},
	{"attention/values", 128, 64, 128, false, false},
	{"vector/nn", 1, 1024, 1024, false, false},
	{"vector/nt", 1, 1024, 1024, false, true},
	{"token/nt", 1, 3072, 768, false, true},
	{"token/four", 4, 3072, 768, false, true},
	{"token/head", 1, 50257, 768, false, true},
	{"column/nn", 1024, 1, 1024, false, false},
	{"thin/nn", 8, 4096, 1024, false, false},
	{"thin/nt", 8, 4096, 1024, false, true},
}

func main() {
	asJSON := flag.Bool("json", false, "print one JSON object a line")
	threads := flag.Int("threads", 1, "the most threads a product may use (GOMAXPROCS)")
	dt := flag.String("dtype", "float32", "what is multiplied: float32 or bfloat16")
	match := flag.String("match", "", "only the cases whose name contains this")
	spend := flag.Duration("time", 200*time.Millisecond, "how long to repeat each case")
	flag.Parse()
	if *dt != "float32" && *dt != "bfloat16" {
		fmt.Fprintf(os.Stderr, "gemm: -dtype %s: want float32 or bfloat16\n", *dt)
		os.Exit(2)
	}
	runtime.GOMAXPROCS(*threads)
	quiet := os.Getenv("GORUN_RANK") != "" && os.Getenv("GORUN_RANK") != "0"
	level := simd.Best()
	if *dt == "bfloat16" {
		level = simd.BestBF16()
	}
	if !*asJSON && !quiet {
		fmt.Printf("%s, %v, %d thread(s)\n%-18s %6s %6s %6s %12s %10s\n", *dt, level, *threads, "case", "m", "n", "k", "ns", "GFLOP/s")
	}
	for _, s := range shapes {
		if !strings.Contains(s.Name, *match) {
			continue
		}
		var r result
		if *dt == "bfloat16" {
			r = measure(s, *spend, halves(s))
		} else {
			r = measure(s, *spend, floats(s))
		}
		r.Threads = *threads
		switch {
		case quiet:
		case *asJSON:
			if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
				fmt.Fprintln(os.Stderr, "gemm:", err)
				os.Exit(1)
			}
		default:
			fmt.Printf("%-18s %6d %6d %6d %12d %10.1f\n", s.Name, s.M, s.N, s.K, r.Ns, r.GFlops)
		}
	}
}

// measure repeats the product of a shape and returns the fastest run. Products
// too short for the clock are timed in batches.
func measure(s shape, spend time.Duration, multiply func()) result {
	flops := 2 * float64(s.M) * float64(s.N) * float64(s.K)
	batch := max(1, int(1e6/flops)*5)
	best := time.Duration(1<<63 - 1)
	for runs, start := 0, time.Now(); runs < 3 || time.Since(start) < spend; runs++ {
		t := time.Now()
		for range batch {
			multiply()
		}
		best = min(best, time.Since(t))
	}
	perCall := float64(best.Nanoseconds()) / float64(batch)
	return result{shape: s, GFlops: flops / perCall, Ns: int64(perCall)}
}

// strides returns the distances between the rows of both operands.
func (s shape) strides() (lda, ldb int) {
	lda, ldb = s.K, s.N
	if s.TransA {
		lda = s.M
	}
	if s.TransB {
		ldb = s.K
	}
	return lda, ldb
}

// floats returns a function that makes the product of float32.
func floats(s shape) func() {
	a, b, c := filled(s.M*s.K), filled(s.K*s.N), make([]float32, s.M*s.N)
	lda, ldb := s.strides()
	return func() { gemm.Gemm(s.TransA, s.TransB, s.M, s.N, s.K, 1, a, lda, b, ldb, 0, c, s.N) }
}

// halves returns a function that makes the product of bfloat16.
func halves(s shape) func() {
	a, b, c := make([]dtype.BF16, s.M*s.K), make([]dtype.BF16, s.K*s.N), make([]dtype.BF16, s.M*s.N)
	simd.ToBF16(a, filled(len(a)))
	simd.ToBF16(b, filled(len(b)))
	lda, ldb := s.strides()
	return func() {
		gemm.BatchBF16(1, s.TransA, s.TransB, s.M, s.N, s.K, 1, a, lda, 0, b, ldb, 0, 0, c, s.N, 0)
	}
}

// filled returns n small numbers that differ.
func filled(n int) []float32 {
	s := make([]float32, n)
	for i := range s {
		s[i] = float32(i*7919%1009)/1009 - 0.5
	}
	return s
}
