//go:build linux

// Command peers runs one of our benchmarks and, in turns with it, the libraries that a user would
// take instead. It prints the medians side by side.
//
//	go run ./bench/peers -np 2 embedding
//	go run ./bench/peers -np 2 -rounds 5 -match cross-entropy loss
//	go run ./bench/peers -np 1 -dtype bfloat16 gemm
//
// The benchmarks are comm, conv, dlrm, embedding, gemm, kernels, loss, ops, redistribute and
// step; dlrm is embedding with -dlrm. The peers are, as far as they are installed: PyTorch, with gloo, with MPI and as
// one process; Open MPI 4 and 5, for one of which a compiler wrapper is there, and over the first our own
// benchmark by each of our three MPI backends; and "bound", a C program
// that only does the reads and writes that cannot be avoided. One line names each missing peer.
//
// In each round every program runs once, so that a slow minute of the machine
// hits all of them. A figure is the median over the rounds of the median over
// the calls, in µs (in ops of one operator, in gemm the fastest call). A ratio, in parentheses,
// is the median over the rounds of the peer's time divided by ours: above 1, ours is faster.
//
// PyTorch is the python3 on PATH if that has torch, or else the one of a Debian
// tree in PEERS_CHROOT (default: gorun-peers in the user's cache folder), which
// takes root. It runs tuned: the allocator keeps memory, and OpenBLAS is told
// of AVX-512, which it does not detect on every processor. All programs use one thread for each
// rank. PEERS_DIR is a folder with scripts to use instead of those here.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	bench  string
	np     int
	rounds int
	budget time.Duration
	match  string
	gorun  string
	only   string
	json   bool
	dtype  string
	max    int           // bytes of the largest buffer of comm
	limit  time.Duration // of one run of one program
}

var benchmarks = []string{"comm", "conv", "dlrm", "embedding", "gemm", "kernels", "loss", "ops", "redistribute", "step"}

// narrow are the benchmarks that measure bfloat16 too.
var narrow = []string{"conv", "gemm", "kernels", "loss", "step"}

func main() {
	var o options
	flag.IntVar(&o.np, "np", 2, "ranks")
	flag.IntVar(&o.rounds, "rounds", 3, "how often every program runs")
	flag.DurationVar(&o.budget, "time", 0, "how long to measure each case, about (default 1s, of comm 100ms)")
	flag.DurationVar(&o.limit, "limit", 5*time.Minute, "the most that one run of one program may take; what it has measured by then counts")
	flag.IntVar(&o.max, "max", 0, "the largest buffer of comm, in bytes (default 64 MiB, for more than two ranks 16 MiB)")
	flag.StringVar(&o.match, "match", "", "only the cases whose names contain this")
	flag.StringVar(&o.dtype, "dtype", "float32", "type of the numbers of conv, gemm, kernels, loss and step: float32 or bfloat16")
	flag.StringVar(&o.gorun, "gorun", "bin/gorun", "the launcher")
	flag.StringVar(&o.only, "only", "", "only the programs whose names contain one of these, separated by commas (ours always)")
	flag.BoolVar(&o.json, "json", false, "write JSON lines")
	flag.Parse()
	if flag.NArg() != 1 || !slices.Contains(benchmarks, flag.Arg(0)) {
		fmt.Fprintln(os.Stderr, "usage: peers [flags] "+strings.Join(benchmarks, "|"))
		flag.PrintDefaults()
		os.Exit(2)
	}
	o.bench = flag.Arg(0)
	if o.dtype != "float32" && (o.dtype != "bfloat16" || !slices.Contains(narrow, o.bench)) {
		fmt.Fprintf(os.Stderr, "peers: -dtype %s: %s has float32", o.dtype, o.bench)
		if slices.Contains(narrow, o.bench) {
			fmt.Fprint(os.Stderr, " and bfloat16")
		}
		fmt.Fprintln(os.Stderr)
		os.Exit(2)
	}
	if o.bench == "comm" {
		o.budget = cmp.Or(o.budget, 100*time.Millisecond)
	}
	o.budget = cmp.Or(o.budget, time.Second)
	if o.max == 0 {
		o.max = 16 << 20
		if o.np <= 2 {
			o.max = 64 << 20
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := compare(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// compare runs the rounds and prints the table.
func compare(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "peers")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	found, missing, clean, err := find(ctx, o, dir)
	defer clean()
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		fmt.Fprintln(os.Stderr, "missing: "+strings.Join(missing, "; "))
	}
	var t table
	for round := range o.rounds {
		for _, p := range found {
			limited, cancel := context.WithTimeoutCause(ctx, o.limit, fmt.Errorf("not done after %v: raise -limit, or lower -time or -max", o.limit))
			lines, err := p.run(limited)
			cancel()
			if err != nil && (p.name == ours && len(lines) == 0 || ctx.Err() != nil) {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			if err != nil {
				fmt.Fprintf(os.Stderr, "%s, round %d: %v\n", p.name, round+1, err)
			}
			t.add(round, p.name, lines)
		}
	}
	if o.json {
		return t.writeJSON(os.Stdout)
	}
	return t.write(os.Stdout)
}
