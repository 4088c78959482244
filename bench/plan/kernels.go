package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A share is what one kernel takes of a step, in seconds.
type share struct{ predicted, measured float64 }

// Rows of the table that are no one kernel. A plan names functions of elements by operator.
const (
	elements = "of elements"
	inCalls  = "calls"
	beside   = "beside them"
	together = "together"
)

// planned and ran say where kernels of a plan and of a profile belong that are not in rows of their own.
var (
	planned = map[string]string{"the program": beside}
	ran     = map[string]string{"Unary": elements, "UnaryGrad": elements, "Binary": elements, "BinaryLoop": elements, "BinaryScalar": elements,
		"Axpy": elements, "CompareLoop": elements, "Where": elements, "Clamp": elements, "ClampGrad": elements, "Leaky": elements,
		"Cast": elements, "Native": together, "Scratch": together, "Piece": together}
)

// byKernel prints what kernels take of a step of rank 0: predicted, and in processor time, as a profile of many steps
// has it.
func byKernel(w io.Writer, gorun, np, path, dir string, p *program, its *plan) error {
	kernels, err := profiled(gorun, np, path, dir, slices.Concat(p.args, p.longer))
	if err != nil {
		return err
	}
	for _, k := range its.Ranks[0].Kernels {
		name, _, _ := strings.Cut(k.Name, " ") // without the type
		switch _, own := kernels[name]; {
		case planned[k.Name] != "":
			name = planned[k.Name]
		case !own:
			name = elements
		}
		kernels[name] = share{kernels[name].predicted + k.Seconds, kernels[name].measured}
	}
	for _, r := range its.Time.Ranks {
		if r.Rank == 0 {
			kernels[inCalls] = share{r.Communication + r.Waits, kernels[inCalls].measured}
		}
	}
	kernels[together] = share{its.Time.Seconds, kernels[together].measured}
	rows := slices.SortedFunc(maps.Keys(kernels), func(a, b string) int {
		return cmp.Compare(max(kernels[b].predicted, kernels[b].measured), max(kernels[a].predicted, kernels[a].measured))
	})
	fmt.Fprintf(w, "  of rank 0          predicted, ms  processor, ms\n")
	for _, name := range rows {
		if s := kernels[name]; max(s.predicted, s.measured) >= kernels[together].measured/100 {
			fmt.Fprintf(w, "  %-19s%13.2f  %13.2f\n", name, 1e3*s.predicted, 1e3*s.measured)
		}
	}
	return nil
}

// loop makes the steps.
const loop = "train.(*Run).Do"

// function finds, in a line of go tool pprof, the processor time of a function and of what it calls, and its name if it is no
// function in another.
var function = regexp.MustCompile(`^ *[0-9.]+\w* +[0-9.]+% +[0-9.]+% +([0-9.]+)us +[0-9.]+% +\S+/gorun/` +
	`([^\s.]+\.(?:\(\*?\w+\)\.)?\w+)(?: \(inline\))?\n$`)

// profiled runs the program with a profile, and returns what each kernel takes of a step of rank 0.
func profiled(gorun, np, path, dir string, args []string) (map[string]share, error) {
	metrics := filepath.Join(dir, "profiled.jsonl")
	args = append([]string{"-np", np, "--profile", dir, path, "-metrics", metrics}, args...)
	if out, err := exec.Command(gorun, args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("gorun %v: %w\n%s", args, err, out)
	}
	text, err := os.ReadFile(metrics)
	if err != nil {
		return nil, err
	}
	steps := float64(bytes.Count(text, []byte("\n")))
	pprof := []string{"tool", "pprof", "-top", "-cum", "-unit=us", "-nodecount=100000", "-focus=" + regexp.QuoteMeta(loop),
		filepath.Join(dir, "rank.0.cpu")}
	out, err := exec.Command("go", pprof...).Output()
	if err != nil {
		return nil, fmt.Errorf("go %v: %w", pprof, err)
	}
	times := map[string]float64{}
	for line := range strings.Lines(string(out)) {
		m := function.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		us, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return nil, err
		}
		times[m[2]] = us / 1e6 / steps
	}
	rest := times[loop] - times["comm.(*Comm).run"]
	kernels := map[string]share{inCalls: {measured: times["comm.(*Comm).run"]}, together: {measured: times[loop]}}
	for f, seconds := range times {
		name, kernel := strings.CutPrefix(f, "tensor/cpu.(*own).")
		if !kernel || ran[name] == together {
			continue
		}
		rest -= seconds
		name = cmp.Or(ran[name], name)
		kernels[name] = share{measured: kernels[name].measured + seconds}
	}
	kernels[beside] = share{measured: rest}
	return kernels, os.Remove(metrics)
}
