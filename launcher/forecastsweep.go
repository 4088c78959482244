package launcher

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/gorun-spmd/gorun/internal/forecast"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/launcher/phrase"
)

// A sweepFlag is a flag of the program and the values that a sweep gives it.
type sweepFlag struct {
	name    string
	values  []string
	divides bool // its values are numbers of ranks
}

// parseSweep reads "dp=1,2,4 tp=1,2,4 /layout=row-wise,mixed".
func parseSweep(text string) (flags []sweepFlag, err error) {
	for word := range strings.FieldsSeq(text) {
		name, values, ok := strings.Cut(word, "=")
		f := sweepFlag{divides: true}
		if name, ok := strings.CutPrefix(name, "/"); ok {
			f.name, f.divides = name, false
		} else {
			f.name = name
		}
		if f.values = strings.Split(values, ","); !ok || f.name == "" || slices.Contains(f.values, "") {
			return nil, fmt.Errorf("%q: give a flag and its values, as dp=1,2,4", word)
		}
		for _, v := range f.values {
			if n, err := strconv.Atoi(v); f.divides && (err != nil || n < 1) {
				return nil, fmt.Errorf("%q: %q is no number of ranks; a flag that divides none has a slash before it, /%s", word, v, word)
			}
		}
		flags = append(flags, f)
	}
	if len(flags) == 0 {
		return nil, fmt.Errorf("%q names no flag; give for instance dp=1,2,4 tp=1,2,4", text)
	}
	return flags, nil
}

// arguments returns each way to set the flags, as arguments, in which the numbers of ranks make size.
func arguments(flags []sweepFlag, size int) (ways [][]string) {
	divide := slices.ContainsFunc(flags, func(f sweepFlag) bool { return f.divides })
	var set func(i, product int, args []string)
	set = func(i, product int, args []string) {
		if i == len(flags) {
			if product == size || !divide {
				ways = append(ways, slices.Clone(args))
			}
			return
		}
		for _, v := range flags[i].values {
			n := product
			if flags[i].divides {
				k, _ := strconv.Atoi(v) // parseSweep has looked
				n *= k
			}
			if n <= size {
				set(i+1, n, append(args, "-"+flags[i].name, v))
			}
		}
	}
	set(0, 1, nil)
	return ways
}

// A trial is one line of a sweep.
type trial struct {
	Args    []string         `json:"args"`
	Seconds float64          `json:"seconds"` // of a step; 0: not predicted
	Memory  int              `json:"memory"`  // bytes of the rank with the most
	Fits    bool             `json:"fits"`
	Error   string           `json:"error,omitempty"` // why there is no plan
	Report  *forecast.Report `json:"-"`
}

// rankTrials sorts trials: those that fit first, then by time, then by memory.
func rankTrials(trials []trial) {
	bad := func(t trial) int {
		switch {
		case t.Error != "":
			return 2
		case !t.Fits:
			return 1
		}
		return 0
	}
	slices.SortStableFunc(trials, func(a, b trial) int {
		return cmp.Or(bad(a)-bad(b), cmp.Compare(unknownLast(a.Seconds), unknownLast(b.Seconds)), a.Memory-b.Memory)
	})
}

func unknownLast(s float64) float64 {
	if s == 0 {
		return math.Inf(1)
	}
	return s
}

// writeTrials prints a sweep.
func writeTrials(w io.Writer, trials []trial, size, memory int, asJSON bool) error {
	if asJSON {
		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		return out.Encode(trials)
	}
	fmt.Fprintf(w, "%s, %s, the fastest first\n", ints.Counted(size, "rank"), ints.Counted(len(trials), "plan"))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  step\tcompute\tcalls\tmemory\targuments")
	for _, k := range trials {
		args := strings.Join(k.Args, " ")
		switch {
		case k.Error != "":
			fmt.Fprintf(t, "  –\t\t\t\t%s: %s\n", args, k.Error)
			continue
		case !k.Fits:
			args += fmt.Sprintf(": does not fit %s", sizeOf(memory))
		}
		step, compute := "–", ""
		if p := k.Report.Time; p != nil {
			step = phrase.Seconds(p.Seconds)
			for _, s := range p.Path {
				if s.What == "compute" {
					compute = phrase.Seconds(s.Seconds)
				}
			}
		}
		most := slices.MaxFunc(k.Report.Ranks, func(a, b *forecast.Rank) int { return cmp.Compare(callBytes(a), callBytes(b)) })
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\n", step, compute, sizeOf(callBytes(most)), sizeOf(k.Memory), args)
	}
	return t.Flush()
}
