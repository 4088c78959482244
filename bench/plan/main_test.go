//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/internal/testenv"
)

// A small program is predicted and measured: the table has a line for each number of ranks, with times that are positive and
// their ratio, and the plan's calls and bytes are those that were made; lines of JSON say the same. Of its kernels there is a table.
func TestPlanBesideReality(t *testing.T) {
	testenv.DependsOn(t, "../../examples/train")
	bin := t.TempDir()
	testenv.Build(t, bin, nil, "../../cmd/gorun")
	gorun := filepath.Join(bin, "gorun")
	const flags = "-steps 6 -ngram 1 -sample 0 -plot= -data ../../docs -layers 1 -width 16 -heads 2 -context 8 -batch 4"
	small := []program{{"train", strings.Fields(flags), strings.Fields("-steps 400")}, {"nosuch", nil, nil}}
	var table, lines strings.Builder
	if err := run(&table, gorun, small, []string{"1", "2"}, "train", 1, false, false); err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(table.String(), "\n")
	if !strings.HasPrefix(head, "program  ranks  predicted, ms  measured, ms  ratio") {
		t.Errorf("the table begins with %q", head)
	}
	np := 0
	for in := bufio.NewScanner(strings.NewReader(rest)); in.Scan(); {
		np++
		var n [7]float64
		fields := strings.Fields(in.Text())
		if len(fields) != 8 || fields[0] != "train" {
			t.Fatalf("a line is %q", in.Text())
		}
		for i := range n {
			var err error
			if n[i], err = strconv.ParseFloat(fields[i+1], 64); err != nil { // as 3≠4, if the plan says another number
				t.Fatalf("%q: %v", in.Text(), err)
			}
		}
		predicted, measured, ratio, median, calls, bytes := n[1], n[2], n[3], n[4], n[5], n[6]
		if int(n[0]) != np || predicted <= 0 || measured <= 0 || median < measured || ratio < 0.9*predicted/measured-0.01 ||
			ratio > 1.1*predicted/measured+0.01 {
			t.Errorf("on %d ranks: %q", np, in.Text())
		}
		if np == 2 && (calls < 5 || bytes < 100) {
			t.Errorf("two ranks make %v calls of %v bytes", calls, bytes)
		}
	}
	if np != 2 {
		t.Errorf("%d lines, want one for 1 rank and one for 2:\n%s", np, table.String())
	}
	if err := run(&lines, gorun, small, []string{"2"}, "train", 1, true, false); err != nil {
		t.Fatal(err)
	}
	var r result
	if err := json.Unmarshal([]byte(lines.String()), &r); err != nil || r.Program != "train" || r.NP != "2" || r.Calls < 5 ||
		r.Calls != r.PlannedCalls || r.Bytes != r.PlannedBytes {
		t.Errorf("%+v, %v, of %s", r, err, lines.String())
	}
	t.Setenv("GOMAXPROCS", "1")
	var kernels strings.Builder
	if err := run(&kernels, gorun, small, []string{"1"}, "train", 1, false, true); err != nil {
		t.Fatal(err)
	}
	found := map[string][2]float64{}
	for in := bufio.NewScanner(strings.NewReader(kernels.String())); in.Scan(); {
		if name, rest, ok := strings.Cut(strings.TrimSpace(in.Text()), "  "); ok {
			var s [2]float64
			if n, _ := fmt.Sscan(rest, &s[0], &s[1]); n == 2 {
				found[name] = s
			}
		}
	}
	for _, name := range []string{"MatMul", "beside them", "together"} {
		if s := found[name]; s[0] <= 0 || s[1] <= 0 || s[0] > found["together"][0] || s[1] > found["together"][1] {
			t.Errorf("%s: %v\n%s", name, s, kernels.String())
		}
	}
	if err := run(&lines, gorun, small, []string{"1"}, "nosuch", 1, true, false); err == nil {
		t.Error("a program that is not there is compared")
	}
}
