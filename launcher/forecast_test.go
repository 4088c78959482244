package launcher

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/internal/forecast"
	"github.com/gorun-spmd/gorun/internal/job"
)

func noEnv(string) (string, bool) { return "", false }

func TestForecastCommandLine(t *testing.T) {
	c, _, err := parseForecast([]string{"-np", "4096", "--memory", "80GB", "--ranks", "7,9", "--value", "a/b.go:3=0.5", "--same-bits",
		"true", "-x", "1"},
		noEnv, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	a := c.program.Apps[0]
	if c.request.Size != 4096 || c.memory != 80e9 || !slices.Equal(c.extra, []int{7, 9}) || c.request.Values["a/b.go:3"] != 0.5 ||
		a.Program != "true" || !slices.Equal(a.Args, []string{"-x", "1"}) || !slices.Contains(a.Vars, job.SameBitsVar+"=1") {
		t.Errorf("%+v, %+v", c, a)
	}
	for want, line := range map[string]string{
		"give the number of ranks: -np 1":      "true",
		"give a number and a unit, as 64GiB":   "-np 2 --memory lots true",
		"the unit GiiB":                        "-np 2 --memory 3GiiB true",
		"--ranks 2: the ranks are 0 to 1":      "-np 2 --ranks 2 true",
		"at most 1024 run at once":             "-np 2000 --ranks all true",
		"give a line and a number":             "-np 2 --value x true",
		"belongs to no level":                  "-np 2 --net 25us true",
		"has no bandwidth":                     "-np 16 --net host:8,fabric:25us true",
		"how many ranks lie in one host":       "-np 16 --net host:1us,fabric:25us,1GB/s true",
		"do not fit the one host of 8":         "-np 16 --net host:8 true",
		"is no number of ranks, no latency":    "-np 16 --net host:many true",
		"predicts no time":                     "-np 2 --machine none --trace x true",
		"give a flag and its values":           "-np 2 --sweep dp true",
		"is no number of ranks; a flag that":   "-np 2 --sweep layout=mixed true",
		"--trace is of one step":               "-np 2 --sweep dp=1 --trace x true",
		"no program given":                     "-np 2",
		"gorun plan -h says how":               "-np 2 --nosuch true",
		"--steps 0: give at least 1":           "-np 2 --steps 0 true",
		"\"x\" is no rank; give numbers with":  "-np 2 --ranks x true",
		"2 programs; give one":                 "-np 2 true : -np 1 true",
		"-np -1: give 1 to 1048576 ranks":      "-np -1 true",
		"-np 2000000: give 1 to 1048576 ranks": "-np 2000000 true",
	} {
		if _, _, err := parseForecast(strings.Fields(line), noEnv, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", line, err, want)
		}
	}
	if _, usage, err := parseForecast([]string{"-h"}, noEnv, io.Discard); !usage || err != nil {
		t.Errorf("-h: %v, %v", usage, err)
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int{"64GiB": 64 << 30, "1.5kB": 1500, "7": 7, "2MB": 2e6, "3TiB": 3 << 40} {
		if got, err := parseSize(text); got != want || err != nil {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for bytes, want := range map[int]string{0: "0 B", 999: "999 B", 1000: "1.00 kB", 12_340: "12.3 kB", 999_600: "1.00 MB",
		5 << 30: "5.37 GB"} {
		if got := sizeOf(bytes); got != want {
			t.Errorf("%d: %q, want %q", bytes, got, want)
		}
	}
}

func TestForecastTable(t *testing.T) {
	memory := forecast.Memory{Parameters: 1e9, Gradients: 1e9, State: 2e9, Activations: 3e9, Peak: 7e9, Line: "me/main.go:7",
		Host: 1e6}
	calls := []forecast.Call{
		{Kind: "AllReduce", Group: "dp", Size: 2048, Cause: "gradients", Line: "me/main.go:9 via x.go:3", Count: 1, Bytes: 1e9},
		{Kind: "AllGather", Group: "tp", Size: 2, Cause: "Cat", Line: "me/main.go:8", Count: 12, Bytes: 24000}}
	less := memory
	less.Activations, less.Peak = 1e9, 5e9
	r := &forecast.Report{Size: 4096, Meshes: []*forecast.Mesh{{Names: []string{"dp", "tp"}, Sizes: []int{2048, 2}, Whole: true}},
		Ranks: []*forecast.Rank{{Rank: 0, Count: 1, Memory: memory, Calls: calls},
			{Rank: 1, Count: 4000, Memory: memory, Calls: calls, FLOPs: 5e12, Bytes: 3e9},
			{Rank: 4095, Count: 95, Memory: less, Calls: calls[:1]}}, Notes: []string{"3 of 4096 ranks run"}}
	var b strings.Builder
	writeForecast(&b, r, 6e9)
	const want = `4096 ranks, mesh (dp=2048,tp=2)

memory of a rank's tensors at the peak
  ranks  for instance  parameters  gradients  optimizer  others   together  at
  4001   rank 0        1.00 GB     1.00 GB    2.00 GB    3.00 GB  7.00 GB   me/main.go:7
  95     rank 4095     1.00 GB     1.00 GB    2.00 GB    1.00 GB  5.00 GB   me/main.go:7
beside them a rank's process has Go's memory, 1.00 MB here, and its program

collectives of a step, of rank 0
  calls  bytes    kind       group      cause      line
  1      1.00 GB  AllReduce  dp (2048)  gradients  me/main.go:9
  12     24.0 kB  AllGather  tp (2)     Cat        me/main.go:8

by group
  dp (2048)  1 call    1.00 GB
  tp (2)     12 calls  24.0 kB

a step computes 5e+12 FLOP and moves 3.00 GB in the memory of rank 1
3 of 4096 ranks run
does not fit: rank 0 takes 7.00 GB of 6.00 GB, and 1.00 GB too much; give each rank less of the batch: ` +
		`more ranks along the axis that divides it, or a smaller batch, or accumulate gradients over parts of it (train.Run.Accumulate); ` +
		`dtensor.Recompute keeps less of a block
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	if ok, text := fits(r, 3e9); ok || !strings.Contains(text, "divide the parameters over more ranks") {
		t.Errorf("%v, %s", ok, text)
	}
	if ok, text := fits(r, 8e9); !ok || text != "fits: rank 0 takes 7.00 GB of 8.00 GB" {
		t.Errorf("%v, %s", ok, text)
	}
}

func TestNet(t *testing.T) {
	net, err := netText("host:8,fabric:25us,12.5GB/s").parse(20)
	want := forecast.Net{{Name: "host", Ranks: 8}, {Name: "fabric", Ranks: 20, Link: forecast.Link{Latency: 25e-6, Bandwidth: 12.5e9}}}
	if err != nil || !slices.Equal(net, want) {
		t.Errorf("%+v, %v", net, err)
	}
	if net, err := netText("").parse(3); err != nil || !slices.Equal(net, forecast.Net{{Name: "host", Ranks: 3}}) {
		t.Errorf("%+v, %v", net, err)
	}
}

// A sweep sets the flags to all whose product is the number of ranks, and each other value. What fits comes first.
func TestSweep(t *testing.T) {
	flags, err := parseSweep("dp=1,2,4 tp=1,2 /batch=8,16")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, way := range arguments(flags, 4) {
		got = append(got, strings.Join(way, " "))
	}
	want := []string{"-dp 2 -tp 2 -batch 8", "-dp 2 -tp 2 -batch 16", "-dp 4 -tp 1 -batch 8", "-dp 4 -tp 1 -batch 16"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	trials := []trial{{Error: "refused"}, {Seconds: 1, Memory: 9}, {Seconds: 3, Memory: 2, Fits: true}, {Seconds: 2, Memory: 5, Fits: true}}
	rankTrials(trials)
	if trials[0].Seconds != 2 || trials[1].Seconds != 3 || trials[2].Seconds != 1 || trials[3].Error == "" {
		t.Errorf("%+v", trials)
	}
}

// The predicted time of a step ends with what it leaves out.
func TestForecastTime(t *testing.T) {
	r := &forecast.Report{Size: 2, Machine: &forecast.Machine{Cores: 2}, Net: forecast.Net{{Name: "host", Ranks: 2}},
		Ranks: []*forecast.Rank{{Rank: 0, Kernels: []forecast.Kernel{{Name: "the program", Count: 3, Seconds: 2e-3}}}},
		Time: &forecast.Prediction{Seconds: 4e-3, Ranks: []forecast.RankTime{{Rank: 0, Count: 2, Compute: 3e-3, Communication: 1e-3}},
			Path: []forecast.Share{{What: "compute", Seconds: 3e-3}, {What: "AllReduce", Group: "world", Cause: "gradients", Seconds: 1e-3}}}}
	var b strings.Builder
	writeTime(&b, r)
	const want = `
a step takes 4 ms, predicted; 2 ranks on a host of 2 cores
  ranks  for instance  computes  communicates  waits
  2      rank 0        3 ms      1 ms          0 µs
critical path, to the end of rank 0
  3 ms  75 %  compute           
  1 ms  25 %  AllReduce  world  gradients
kernels of rank 0
  2 ms  3 calls  the program
left out: what other programs take of the cores
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	for i := range mostRows + 1 {
		r.Time.Ranks = append(r.Time.Ranks, forecast.RankTime{Rank: i + 2, Count: 1, Compute: float64(i + 4)})
	}
	b.Reset()
	if writeTime(&b, r); !strings.Contains(b.String(), "  … and 2 rows more\n") {
		t.Errorf("of many ranks: %s", b.String())
	}
}
