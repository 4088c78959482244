// Command plan compares gorun plan with what it predicts of the examples: the time of a step, its collectives, and
// their bytes.
//
//	go build -o bin/ ./cmd/gorun && go run ./bench/plan            a table
//	go run ./bench/plan -np 1,2 -match train -rounds 10 -json      lines of JSON
//	go run ./bench/plan -np 1 -match recsys -kernels               and which kernels take more or less than predicted
//
// With -kernels each rank computes on one processor (GOMAXPROCS=1), in the plan too: its time is then that which passes.
//
// Each round measures the machine and predicts, and then runs the program; of both the least time
// counts, as other programs that run meanwhile make steps longer and never shorter. "ratio" is
// predicted by measured, and "median" the middle of all steps that were measured. "calls" and "bytes" are those that
// rank 0 makes and hands in in the second step, as a trace without checks (GORUN_CHECK=0) has
// them; where the plan says another number, that comes first.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A program is an example and its arguments.
type program struct {
	name   string
	args   []string
	longer []string // of a run whose profile has enough samples
}

func programs() []program {
	return []program{
		{"train", []string{"-steps", "30", "-ngram", "1", "-sample", "0", "-plot", "", "-data", "docs"}, []string{"-steps", "100"}},
		{"recsys", []string{"-rows", "20000", "-batch", "512"}, []string{"-epochs", "30"}},
	}
}

// A result is one line of the output, in seconds.
type result struct {
	Program      string  `json:"program"`
	NP           string  `json:"np"`
	Predicted    float64 `json:"predicted_s"`
	Measured     float64 `json:"measured_s"`
	Median       float64 `json:"median_s"`
	PlannedCalls int     `json:"planned_calls"`
	Calls        int     `json:"calls"`
	PlannedBytes int     `json:"planned_bytes"`
	Bytes        int     `json:"bytes"`
}

// against prints a number, and before it the one that was planned if that is another.
func against(planned, was int) string {
	if planned == was {
		return fmt.Sprint(was)
	}
	return fmt.Sprintf("%d≠%d", planned, was)
}

func main() {
	np := flag.String("np", "1,2,4", "numbers of ranks")
	match := flag.String("match", "", "only the programs whose names contain this")
	rounds := flag.Int("rounds", 3, "how often each is predicted and measured")
	asJSON := flag.Bool("json", false, "write JSON lines")
	kernels := flag.Bool("kernels", false, "print what each kernel takes of a step of rank 0 too")
	gorun := flag.String("gorun", "bin/gorun", "the launcher")
	flag.Parse()
	if *kernels {
		os.Setenv("GOMAXPROCS", "1")
	}
	if err := run(os.Stdout, *gorun, programs(), strings.Split(*np, ","), *match, *rounds, *asJSON, *kernels); err != nil {
		fmt.Fprintln(os.Stderr, "plan:", err)
		os.Exit(1)
	}
}

// run compares programs on the numbers of ranks in sizes, and prints a line for each.
func run(w io.Writer, gorun string, programs []program, sizes []string, match string, rounds int, asJSON, kernels bool) error {
	dir, err := os.MkdirTemp("", "plan")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if !asJSON {
		fmt.Fprintln(w, "program  ranks  predicted, ms  measured, ms  ratio  median, ms  calls      bytes")
	}
	for _, p := range programs {
		if !strings.Contains(p.name, match) {
			continue
		}
		path := filepath.Join(dir, p.name)
		if out, err := exec.Command("go", "build", "-o", path, "github.com/gorun-spmd/gorun/examples/"+p.name).CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		for _, size := range sizes {
			r := result{Program: p.name, NP: size, Predicted: math.Inf(1)}
			var steps []float64
			var least *plan
			for range rounds {
				plan, err := predict(gorun, size, path, p.args)
				if err != nil {
					return err
				}
				if plan.Time.Seconds < r.Predicted {
					least, r.Predicted = plan, plan.Time.Seconds
				}
				r.PlannedCalls, r.PlannedBytes = plan.calls()
				more, err := measured(gorun, size, path, filepath.Join(dir, "metrics.jsonl"), p.args)
				if err != nil {
					return err
				}
				steps = append(steps, more...)
			}
			if r.Calls, r.Bytes, err = made(gorun, size, path, filepath.Join(dir, "trace.json"), p.args); err != nil {
				return err
			}
			slices.Sort(steps)
			r.Measured, r.Median = steps[0], steps[len(steps)/2]
			if asJSON {
				if err := json.NewEncoder(w).Encode(r); err != nil {
					return err
				}
				continue
			}
			fmt.Fprintf(w, "%-7s  %5s  %13.2f  %12.2f  %5.2f  %10.2f  %5s  %9s\n", r.Program, r.NP, 1e3*r.Predicted, 1e3*r.Measured,
				r.Predicted/r.Measured, 1e3*r.Median, against(r.PlannedCalls, r.Calls), against(r.PlannedBytes, r.Bytes))
			if kernels {
				if err := byKernel(w, gorun, size, path, dir, &p, least); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// A plan is what gorun plan says, as far as it is compared.
type plan struct {
	Time struct {
		Seconds float64 `json:"seconds"`
		Ranks   []struct {
			Rank                 int
			Communication, Waits float64
		} `json:"ranks"`
	} `json:"time"`
	Ranks []struct {
		Kernels []struct {
			Name    string  `json:"name"`
			Seconds float64 `json:"seconds"`
		} `json:"kernels"`
		Calls []struct {
			Count int `json:"count"`
			Bytes int `json:"bytes"`
		} `json:"calls"`
	} `json:"ranks"`
}

// calls returns how many collectives rank 0 makes in a step, and their bytes.
func (p *plan) calls() (n, bytes int) {
	for _, c := range p.Ranks[0].Calls {
		n += c.Count
		bytes += c.Bytes
	}
	return n, bytes
}

// predict returns what gorun plan says.
func predict(gorun, np, path string, args []string) (*plan, error) {
	out, err := exec.Command(gorun, append([]string{"plan", "-json", "-np", np, path}, args...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("gorun plan -np %s %s: %w", np, path, err)
	}
	p := new(plan)
	err = json.Unmarshal(out, p)
	if err == nil && (p.Time.Seconds == 0 || len(p.Ranks) == 0) {
		err = fmt.Errorf("gorun plan -np %s %s predicts no time", np, path)
	}
	return p, err
}

// made returns how many collectives rank 0 makes in its second step, and their bytes, from a trace of three steps.
func made(gorun, np, path, trace string, args []string) (calls, bytes int, err error) {
	cmd := exec.Command(gorun, append(append([]string{"-np", np, "--trace", trace, path}, args...), "-steps", "3")...)
	cmd.Env = append(os.Environ(), "GORUN_CHECK=0") // the calls of checks are in no plan
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, 0, fmt.Errorf("gorun -np %s --trace %s: %w\n%s", np, path, err, out)
	}
	text, err := os.ReadFile(trace)
	if err != nil {
		return 0, 0, err
	}
	var t struct {
		TraceEvents []struct {
			Cat, Name string
			Pid       int
			Ts, Dur   float64
			Args      struct{ Bytes int }
		} `json:"traceEvents"`
	}
	if err := json.Unmarshal(text, &t); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", trace, err)
	}
	from, to := 0.0, 0.0
	for _, e := range t.TraceEvents {
		if e.Pid == 0 && e.Cat == "step" && e.Name == "step 1" {
			from, to = e.Ts, e.Ts+e.Dur
		}
	}
	if to == 0 {
		return 0, 0, fmt.Errorf("%s has no step 1 of rank 0", trace)
	}
	for _, e := range t.TraceEvents {
		if e.Pid == 0 && (e.Cat == "collective" || e.Cat == "message") && e.Ts >= from && e.Ts < to {
			calls++
			bytes += e.Args.Bytes
		}
	}
	return calls, bytes, nil
}

// measured returns how long each step takes but the first few, which also touch memory for the first time, and the
// last, beside which no next batch is made.
func measured(gorun, np, path, metrics string, args []string) (steps []float64, err error) {
	cmd := exec.Command(gorun, append(append([]string{"-np", np, path}, args...), "-metrics", metrics)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("gorun -np %s %s: %w\n%s", np, path, err, out)
	}
	text, err := os.ReadFile(metrics)
	if err != nil {
		return nil, err
	}
	const warm = 3
	before := 0.0
	for lines, n := bufio.NewScanner(bytes.NewReader(text)), 0; lines.Scan(); n++ {
		var s struct {
			Seconds float64 `json:"seconds"`
		}
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return nil, err
		}
		if n > warm {
			steps = append(steps, s.Seconds-before)
		}
		before = s.Seconds
	}
	if len(steps) < 2 {
		return nil, fmt.Errorf("%s has too few steps", metrics)
	}
	return steps[:len(steps)-1], os.Remove(metrics)
}
