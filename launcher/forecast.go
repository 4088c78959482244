package launcher

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/gorun-spmd/gorun/internal/forecast"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/launcher/options"
)

// forecastUsage fits a screen.
const forecastUsage = `usage: gorun plan -np N [flags] program [arguments]
Says what N ranks of a program will need, without them: the program runs here,
in one process, on tensors that have shapes and no numbers. Of ranks that are
alike one runs. It prints the memory of a rank, each collective of a step, and
how long the step takes; ranks that would hang or disagree are an error with
both lines. Linux only.
  -np N              number of ranks, up to 1048576
  --memory SIZE      what a rank may have: 64GiB, 80GB; exit status 1 if not enough
  --ranks 7,9        have these run too; all: all of them
  --value FILE:LINE=NUMBER  what the program reads there; may be repeated
  --steps N          steps to make (3); the second is shown
  --same-bits        the job is to run with gorun --same-bits
  --net LEVELS       which ranks share a host, and what links hosts, such as
                     host:8,fabric:25us,12.5GB/s (default: all on one host)
  --machine FILE     how fast a host is, from gorun -np 2 gorun rates (default:
                     this machine is measured, in a few seconds); none: no times
  --trace FILE       write the predicted step, for ui.perfetto.dev
  --sweep 'dp=1,2,4 tp=1,2,4'  plan with each -dp and -tp whose product is the
                     number of ranks, the fastest first; a flag that divides no
                     ranks has a slash before its name: '/batch=32,64'
  --json             print everything as JSON
The program must use package dtensor. It ends where it asks runtime.Stopping
after the last step, as package train does. Nothing is saved.
`

// A forecastCommand is a command line of gorun plan.
type forecastCommand struct {
	request forecast.Request
	memory  int // bytes; 0: no limit
	all     bool
	extra   []int // ranks that run in any case
	json    bool
	net     netText
	machine string // a file; "": this machine is measured
	trace   string
	sweep   []sweepFlag
	program *options.Options
}

// parseForecast reads the arguments of gorun plan. usage says that they ask for help.
func parseForecast(args []string, env func(string) (string, bool), warn io.Writer) (c *forecastCommand, usage bool, err error) {
	c = &forecastCommand{request: forecast.Request{Values: map[string]float64{}}}
	f := flag.NewFlagSet("gorun plan", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.IntVar(&c.request.Size, "np", 0, "")
	f.IntVar(&c.request.Steps, "steps", 3, "")
	f.BoolVar(&c.json, "json", false, "")
	sameBits := f.Bool("same-bits", false, "")
	f.StringVar((*string)(&c.net), "net", "", "")
	f.StringVar(&c.machine, "machine", "", "")
	f.StringVar(&c.trace, "trace", "", "")
	f.Func("sweep", "", func(text string) (err error) {
		c.sweep, err = parseSweep(text)
		return err
	})
	f.Func("memory", "", func(text string) (err error) {
		c.memory, err = parseSize(text)
		return err
	})
	f.Func("ranks", "", c.addRanks)
	f.Func("value", "", c.addValue)
	switch err := f.Parse(args); {
	case err == flag.ErrHelp:
		return nil, true, nil
	case err != nil:
		return nil, false, fmt.Errorf("plan: %w; gorun plan -h says how", err)
	}
	if err := c.check(); err != nil {
		return nil, false, fmt.Errorf("plan: %w", err)
	}
	start := []string{"-np", "1"}
	if *sameBits {
		start = append(start, "--same-bits")
	}
	c.program, err = options.Parse(append(start, f.Args()...), 1, env, warn)
	if err == nil && len(c.program.Apps) > 1 {
		err = fmt.Errorf("plan: %d programs; give one", len(c.program.Apps))
	}
	return c, false, err
}

// addRanks reads a value of --ranks.
func (c *forecastCommand) addRanks(text string) error {
	if text == "all" {
		c.all = true
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		rank, err := strconv.Atoi(part)
		if err != nil {
			return fmt.Errorf("%q is no rank; give numbers with commas, or all", part)
		}
		c.extra = append(c.extra, rank)
	}
	return nil
}

// addValue reads a value of --value.
func (c *forecastCommand) addValue(text string) error {
	line, number, ok := strings.Cut(text, "=")
	v, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil {
		return fmt.Errorf("%q: give a line and a number, as main.go:31=0.5", text)
	}
	c.request.Values[line] = v
	return nil
}

// check checks what the flags say together.
func (c *forecastCommand) check() error {
	size := c.request.Size
	switch {
	case size == 0:
		return fmt.Errorf("give the number of ranks: -np 1 to -np %d", job.MaxSize)
	case size < 1 || size > job.MaxSize:
		return fmt.Errorf("-np %d: give 1 to %d ranks", size, job.MaxSize)
	case c.request.Steps < 1:
		return fmt.Errorf("--steps %d: give at least 1", c.request.Steps)
	case c.all && size > mostAtOnce:
		return fmt.Errorf("--ranks all: at most %d run at once; name some", mostAtOnce)
	}
	if _, err := c.net.parse(size); err != nil {
		return fmt.Errorf("--net: %w", err)
	}
	switch {
	case c.machine == noMachine && (c.trace != "" || c.net != ""):
		return errors.New("--machine none predicts no time; leave --net and --trace out")
	case c.sweep != nil && c.trace != "":
		return errors.New("--trace is of one step, and --sweep plans several; give one of them")
	}
	for _, rank := range c.extra {
		if rank < 0 || rank >= size {
			return fmt.Errorf("--ranks %d: the ranks are 0 to %d", rank, size-1)
		}
	}
	return nil
}

const (
	mostAtOnce = 1024 // ranks that run, at most
	allRun     = 16   // jobs of up to as many ranks run all of them
)

// parseSize reads a number of bytes: 64GiB, 80GB, 1000000.
func parseSize(text string) (bytes int, err error) {
	number, unit := strings.TrimRight(text, "BiGKMTkb"), 1.0
	switch ending := text[len(number):]; ending {
	case "", "B":
	case "kB", "KB":
		unit = 1e3
	case "MB":
		unit = 1e6
	case "GB":
		unit = 1e9
	case "TB":
		unit = 1e12
	case "KiB":
		unit = 1 << 10
	case "MiB":
		unit = 1 << 20
	case "GiB":
		unit = 1 << 30
	case "TiB":
		unit = 1 << 40
	default:
		return 0, fmt.Errorf("%q has the unit %s; give kB, MB, GB, TB, KiB, MiB, GiB or TiB", text, ending)
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !(v > 0) || v*unit >= math.MaxInt/2 {
		return 0, fmt.Errorf("%q is no size; give a number and a unit, as 64GiB", text)
	}
	return int(v * unit), nil
}

// sizeOf writes a number of bytes, with three digits.
func sizeOf(bytes int) string {
	v, units := float64(bytes), []string{"B", "kB", "MB", "GB", "TB", "PB", "EB"}
	for v >= 999.5 && len(units) > 1 {
		v, units = v/1000, units[1:]
	}
	if units[0] == "B" {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.*f %s", max(0, 2-int(math.Log10(v))), v, units[0])
}

// writeForecast prints a report for a person. memory is the limit of a rank, 0: none.
func writeForecast(w io.Writer, r *forecast.Report, memory int) {
	fmt.Fprintf(w, "%s%s\n\n", ints.Counted(r.Size, "rank"), meshOf(r))
	writeMemory(w, r)
	writeCalls(w, r)
	work := slices.MaxFunc(r.Ranks, func(a, b *forecast.Rank) int { return cmp.Compare(a.FLOPs, b.FLOPs) })
	fmt.Fprintf(w, "\na step computes %.3g FLOP and moves %s in the memory of rank %d\n", float64(work.FLOPs), sizeOf(work.Bytes), work.Rank)
	writeTime(w, r)
	for _, note := range r.Notes {
		fmt.Fprintln(w, note)
	}
	if memory > 0 {
		_, text := fits(r, memory)
		fmt.Fprintln(w, text)
	}
}

// meshOf says which mesh of all ranks the program makes: the first, or one of several axes that it makes later.
func meshOf(r *forecast.Report) string {
	i := slices.IndexFunc(r.Meshes, func(m *forecast.Mesh) bool { return m.Whole && (m == r.Meshes[0] || len(m.Names) > 1) })
	if i < 0 {
		return ""
	}
	axes := make([]string, len(r.Meshes[i].Names))
	for k, name := range r.Meshes[i].Names {
		axes[k] = fmt.Sprintf("%s=%d", name, r.Meshes[i].Sizes[k])
	}
	return ", mesh (" + strings.Join(axes, ",") + ")"
}

// writeCalls prints the collectives of the rank that moves the most bytes, by line and by group.
func writeCalls(w io.Writer, r *forecast.Report) {
	most := slices.MaxFunc(r.Ranks, func(a, b *forecast.Rank) int { return cmp.Compare(callBytes(a), callBytes(b)) })
	fmt.Fprintf(w, "\ncollectives of a step, of rank %d\n", most.Rank)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  calls\tbytes\tkind\tgroup\tcause\tline")
	for _, c := range most.Calls {
		line, _, _ := strings.Cut(c.Line, " via ")
		fmt.Fprintf(t, "  %d\t%s\t%s\t%s (%d)\t%s\t%s\n", c.Count, sizeOf(c.Bytes), c.Kind, c.Group, c.Size, c.Cause, line)
	}
	t.Flush()
	fmt.Fprintln(w, "\nby group")
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range byGroup(most.Calls) {
		fmt.Fprintf(t, "  %s (%d)\t%s\t%s\n", c.Group, c.Size, ints.Counted(c.Count, "call"), sizeOf(c.Bytes))
	}
	t.Flush()
}

// writeMemory prints the memory of ranks, those that are alike in one line, the largest first.
func writeMemory(w io.Writer, r *forecast.Report) {
	type row struct {
		forecast.Memory
		ranks, first int
	}
	var rows []row
	for _, it := range r.Ranks {
		m := it.Memory
		m.Host = 0
		i := slices.IndexFunc(rows, func(x row) bool { return x.Memory == m })
		if i < 0 {
			i = len(rows)
			rows = append(rows, row{Memory: m, first: it.Rank})
		}
		rows[i].ranks += it.Count
	}
	slices.SortStableFunc(rows, func(a, b row) int { return b.Peak - a.Peak })
	fmt.Fprintln(w, "memory of a rank's tensors at the peak")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  ranks\tfor instance\tparameters\tgradients\toptimizer\tothers\ttogether\tat")
	for i, m := range rows {
		if i == mostRows {
			fmt.Fprintf(t, "  … and %s more\n", ints.Counted(len(rows)-i, "row"))
			break
		}
		fmt.Fprintf(t, "  %d\trank %d\t%s\t%s\t%s\t%s\t%s\t%s\n", m.ranks, m.first, sizeOf(m.Parameters), sizeOf(m.Gradients), sizeOf(m.State),
			sizeOf(m.Activations), sizeOf(m.Peak), m.Line)
	}
	t.Flush()
	fmt.Fprintf(w, "beside them a rank's process has Go's memory, %s here, and its program\n", sizeOf(r.Ranks[0].Memory.Host))
}

// mostRows is how many rows of a table of ranks a person is shown.
const mostRows = 8

func callBytes(r *forecast.Rank) (bytes int) {
	for _, c := range r.Calls {
		bytes += c.Bytes
	}
	return bytes
}

// byGroup adds calls up by their group, the most bytes first.
func byGroup(calls []forecast.Call) (sums []forecast.Call) {
	for _, c := range calls {
		i := slices.IndexFunc(sums, func(s forecast.Call) bool { return s.Group == c.Group && s.Size == c.Size })
		if i < 0 {
			i = len(sums)
			sums = append(sums, forecast.Call{Group: c.Group, Size: c.Size})
		}
		sums[i].Count += c.Count
		sums[i].Bytes += c.Bytes
	}
	slices.SortStableFunc(sums, func(a, b forecast.Call) int { return b.Bytes - a.Bytes })
	return sums
}

// fits says whether the rank with the most memory has enough, and if not what takes it.
func fits(r *forecast.Report, memory int) (ok bool, text string) {
	most := slices.MaxFunc(r.Ranks, func(a, b *forecast.Rank) int { return cmp.Compare(needs(a), needs(b)) })
	m, all := most.Memory, needs(most)
	if all <= memory {
		return true, fmt.Sprintf("fits: rank %d takes %s of %s", most.Rank, sizeOf(all), sizeOf(memory))
	}
	remedy := "give each rank less of the batch: more ranks along the axis that divides it, or a smaller batch, or accumulate gradients " +
		"over parts of it (train.Run.Accumulate); dtensor.Recompute keeps less of a block"
	if m.Parameters+m.Gradients+m.State > memory {
		remedy = "divide the parameters over more ranks; no batch is small enough"
	}
	return false, fmt.Sprintf("does not fit: rank %d takes %s of %s, and %s too much; %s", most.Rank, sizeOf(all), sizeOf(memory),
		sizeOf(all-memory), remedy)
}

// needs is the memory of a rank's process that is known.
func needs(r *forecast.Rank) int { return r.Memory.Peak + r.Memory.Host }
