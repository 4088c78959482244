//go:build linux

package cluster

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/internal/testenv"
)

var (
	link  = flag.String("cluster.link", "", "the rate of each host's cable in TestLink, as tc has it: 1gbit; empty: not measured")
	delay = flag.Duration("cluster.delay", 0, "how long a frame takes over the cable in TestLink beside that: 100us")
)

// TestLink measures what two hosts with a slow cable between them take: collectives of two ranks on each beside Open
// MPI's own, and steps of the example, one rank on each, with gradients that are summed while the backward pass runs.
// It needs an idle machine.
func TestLink(t *testing.T) {
	dir, mpirun, run := linked(t)
	figures := regexp.MustCompile(`"name":"[a-z_/0-9]+".*"ns":([0-9.]+)`)
	for range 3 {
		for _, call := range []string{"all_reduce/16777216", "all_gather/1048576", "broadcast/16777216"} {
			for _, args := range [][]string{
				{"bin/coll", "2", call, "16777216"},
				{"bin/comm", "-json", "-time", "2s", "-max", "16777216", "-match", call},
			} {
				out := run(append(append(mpirun, "-np", "4"), args...)...)
				for _, f := range figures.FindAllStringSubmatch(out, -1) {
					ns, _ := strconv.ParseFloat(f[1], 64)
					t.Logf("%-9s %-20s %8.1f ms", args[0], call, ns/1e6)
				}
			}
		}
		for _, batch := range []string{"2", "4", "8"} {
			for _, overlap := range []string{"0", "1"} {
				example := train(dir, "-dp", "2", "-steps", "16", "-layers", "4", "-width", "384", "-heads", "6", "-context", "128",
					"-batch", batch, "-json")
				out := run(append(append(mpirun, "-np", "2", "--map-by", "node", "-x", "GORUN_OVERLAP="+overlap), example...)...)
				t.Logf("batch %s, GORUN_OVERLAP=%s %s", batch, overlap,
					regexp.MustCompile(`"(tokens_per_second|state_sha256)":"?\w+`).FindAllString(out, -1))
			}
		}
	}
}

// TestLinkIsPredicted lays steps of the example over such a cable beside what gorun plan predicts of them, from what the two
// ranks and the cable do at once. The least of the steps counts, as in bench/plan. It needs an idle machine.
func TestLinkIsPredicted(t *testing.T) {
	dir, mpirun, run := linked(t)
	apart := append(mpirun, "-np", "2", "--map-by", "node")
	machine := run(append(apart, "bin/gorun", "rates")...)
	machine = machine[strings.IndexByte(machine, '{') : strings.LastIndexByte(machine, '}')+1]
	if err := os.WriteFile(filepath.Join(dir, "machine.json"), []byte(machine), 0o644); err != nil {
		t.Fatal(err)
	}
	ns := func(call string) float64 {
		out := run(append(apart, "bin/comm", "-json", "-time", "2s", "-max", "16777216", "-match", call)...)
		m := regexp.MustCompile(`"ns":([0-9.]+)`).FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("%s: %s", call, out)
		}
		n, _ := strconv.ParseFloat(m[1], 64)
		return n
	}
	net := fmt.Sprintf("host:1,fabric:%.0fus,%.1fMB/s", ns("one_way/8")/1e3, 16777216/ns("both_ways/16777216")*1e3)
	for _, batch := range []string{"2", "4", "8"} {
		example := train(dir, "-dp", "2", "-layers", "4", "-width", "384", "-heads", "6", "-context", "128", "-batch", batch)
		plan := []string{"bin/gorun", "plan", "-np", "2", "--machine", filepath.Join(dir, "machine.json"), "--net", net, "-json"}
		out := run(append(plan, example...)...)
		predicted := regexp.MustCompile(`"time": *\{\s*"seconds": *([0-9.e+-]+)`).FindStringSubmatch(out)
		if predicted == nil {
			t.Fatal(out)
		}
		metrics := filepath.Join(dir, "metrics"+batch+".jsonl")
		run(slices.Concat(apart, []string{"-x", "GORUN_CHECK=0"}, example[:1], []string{"-steps", "16", "-metrics", metrics}, example[1:])...)
		text, err := os.ReadFile(metrics)
		if err != nil {
			t.Fatal(err)
		}
		var ends, steps []float64
		for _, m := range regexp.MustCompile(`"seconds":([0-9.e-]+)`).FindAllStringSubmatch(string(text), -1) {
			n, _ := strconv.ParseFloat(m[1], 64)
			ends = append(ends, n)
		}
		for i := 4; i < len(ends); i++ { // the first touch memory for the first time
			steps = append(steps, ends[i]-ends[i-1])
		}
		slices.Sort(steps)
		seconds, _ := strconv.ParseFloat(predicted[1], 64)
		t.Logf("%s, batch %s: predicted %.0f ms, measured %.0f ms (median %.0f), ratio %.2f", net, batch, 1e3*seconds, 1e3*steps[0],
			1e3*steps[len(steps)/2], seconds/steps[0])
	}
}

// Two ranks on two hosts, each with one core, measure the machine of the first: one rank on one core.
func TestRatesOfTwoHosts(t *testing.T) {
	need(t, "mpirun.openmpi")
	c := up(t, 2)
	build(t, c.dir)
	rates := slices.Concat(openmpi, []string{"-np", "2", "--map-by", "node", "bin/gorun", "rates"})
	out, err := c.run(c.hosts[0], 4*time.Minute, nil, rates...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{`"cores": 1,`, `"ranks": 1,`} {
		if !strings.Contains(out, want) {
			t.Errorf("%s is not in\n%s", want, out)
		}
	}
}

// linked starts two hosts with the cable and builds what they run. It returns the folder that both have, the
// command by which Open MPI starts ranks on them, and a function that runs a command on the first.
func linked(t *testing.T) (dir string, mpirun []string, run func(args ...string) string) {
	t.Helper()
	if *link == "" {
		t.Skip("measures, and asserts no time: give -cluster.link 1gbit")
	}
	need(t, "mpirun.openmpi", "mpicc.openmpi", "tc")
	testenv.DependsOn(t, "../../bench/comm", "../../bench/peers")
	c := up(t, 2)
	build(t, c.dir)
	for _, args := range [][]string{
		{"go", "build", "-o", filepath.Join(c.dir, "bin/comm"), "../../bench/comm"},
		{"mpicc.openmpi", "-O2", "-o", filepath.Join(c.dir, "bin/coll"), "../../bench/peers/c/coll.c", "-lm"},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), withoutCgo...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	for _, h := range c.hosts {
		c.must("nsenter", "-t", strconv.Itoa(h.pid), "--net", "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", *link,
			"burst", "256k", "latency", "50ms")
	}
	if *delay > 0 {
		c.slow(*delay)
	}
	run = func(args ...string) string {
		t.Helper()
		out, err := c.run(c.hosts[0], 4*time.Minute, nil, args...)
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return out
	}
	for _, on := range [][]string{{"nproc"}, {"ssh", "node2", "nproc"}} {
		if out := strings.TrimSpace(run(on...)); out != "1" {
			t.Fatalf("%v says %q, want one core", on, out)
		}
	}
	return c.dir, slices.Clone(openmpi), run
}

// openmpi starts ranks on two hosts. Without --bind-to none those of both would have the first core.
var openmpi = strings.Fields("mpirun.openmpi --mca plm_rsh_agent ssh --mca oob_tcp_if_include eth0 --mca pml ob1 " +
	"--mca btl tcp,vader,self --mca btl_tcp_if_include eth0 --bind-to none --host node1:2,node2:2")
