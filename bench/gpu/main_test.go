package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
)

// Every kernel runs, on the CPU and small, and PyTorch's script has the same names.
func TestEveryCaseRuns(t *testing.T) {
	commtest.Run(t, 1, func(ctx context.Context, world *comm.Comm) error {
		mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "all", Size: 1})
		if err != nil {
			return err
		}
		kernels := cases(ctx, mesh, 1024)
		results, err := measureAll(kernels, mesh.Device())
		if err != nil {
			return err
		}
		ours := map[string]bool{}
		for i, r := range results {
			ours[r.Name] = true
			if r.Millis <= 0 || r.GBs == 0 && r.Tflops == 0 || kernels[i].memory != (r.ExtraMiB > 0) {
				t.Errorf("%+v", r)
			}
		}
		if len(ours) != len(kernels) || len(ours) < 10 {
			t.Errorf("%d names of %d kernels", len(ours), len(kernels))
		}
		theirs := map[string]bool{}
		for _, m := range regexp.MustCompile(`(?m)^ *case\(f?"([^"]+)"`).FindAllStringSubmatch(script, -1) {
			for _, dt := range []string{"float32", "bfloat16"} {
				theirs[strings.ReplaceAll(m[1], "{name}", dt)] = true
			}
		}
		for name := range theirs {
			if !ours[name] {
				t.Errorf("PyTorch measures %q, and nothing else does", name)
			}
		}
		for name := range ours {
			if !theirs[name] && !strings.Contains(name, "in place") {
				t.Errorf("PyTorch does not measure %q", name)
			}
		}
		return nil
	})
}

// PyTorch's times stand beside ours. Without an interpreter or without PyTorch,
// each line says so.
func TestPyTorchIsFoundOrMissing(t *testing.T) {
	interpreter := func(body string) string {
		path := filepath.Join(t.TempDir(), "python")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct{ python, why, table, line string }{
		{interpreter(`[ "$1" = -c ] && [ "$3" = 4 ] && [ "$4" = '["x"]' ] && echo '{"name": "x", "ms": 2.5, "extra_mib": 7}'`), "",
			"2.50 x of PyTorch   PyTorch 2.500 ms", `{"name":"x","ms":1,"torch_ms":2.5,"torch_extra_mib":7,"speedup":2.5}`},
		{interpreter(`echo '{"name": "other", "ms": 2.5}'`), "", "PyTorch missing", `{"name":"x","ms":1,"torch":"missing"}`},
		{interpreter(`echo Traceback >&2; echo "No module named 'torch'" >&2; exit 1`), "exit status 1: No module named 'torch'",
			"PyTorch missing", `{"name":"x","ms":1,"torch":"missing"}`},
		{interpreter(`echo hello`), `printed "hello"`, "PyTorch missing", `{"name":"x","ms":1,"torch":"missing"}`},
		{"/nowhere/python", "no such file", "PyTorch missing", `{"name":"x","ms":1,"torch":"missing"}`},
		{"", "not asked for", "PyTorch missing", `{"name":"x","ms":1,"torch":"missing"}`},
	} {
		theirs, why := torch(t.Context(), c.python, 4, []string{"x"})
		if (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: %q, want %q", c.python, why, c.why)
		}
		r := result{Name: "x", Millis: 1}
		r.beside(theirs)
		var table, lines bytes.Buffer
		if err := write(&table, []result{r}, false); err != nil {
			t.Fatal(err)
		}
		if err := write(&lines, []result{r}, true); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(table.String(), c.table) || strings.TrimSpace(lines.String()) != c.line || !json.Valid(lines.Bytes()) {
			t.Errorf("%s: %s and %s, want %q and %s", c.python, table.String(), lines.String(), c.table, c.line)
		}
	}
}

// A pattern keeps the kernels that it matches, and the copy, in their order.
func TestMatch(t *testing.T) {
	kernels := []measurement{{name: "sum of rows"}, {name: copyName}, {name: "product"}, {name: "sum of all"}}
	for pattern, want := range map[string]string{
		"":       "sum of rows, copy of 1 GiB, product, sum of all",
		"^sum":   "sum of rows, copy of 1 GiB, sum of all",
		"all|pr": "copy of 1 GiB, product, sum of all",
	} {
		got := strings.Join(names(matching(slices.Clone(kernels), regexp.MustCompile(pattern))), ", ")
		if got != want {
			t.Errorf("%q leaves %s, want %s", pattern, got, want)
		}
	}
}
