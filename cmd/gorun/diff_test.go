package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// file writes a file of digests of two steps, the second with this digest and loss.
func file(t *testing.T, ranges, loss string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "digests")
	step := func(n, loss, ranges string) string {
		return `{"step":` + n + `,"loss":"` + loss + `","tensors":[{"name":"model.w","dtype":"F32","shape":[2],"ranges":"` + ranges +
			`"}]}` + "\n"
	}
	text := `{"format":"gorun digest","version":1,"ranks":1}` + "\n" + step("1", "3", strings.Repeat("0", 32)) + step("2", loss, ranges)
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDiff(t *testing.T) {
	a := file(t, strings.Repeat("0", 32), "2")
	b := file(t, strings.Repeat("0", 31)+"1", "2.5")
	fault := filepath.Join(t.TempDir(), "fault")
	text, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	ended := `{"step":2,"loss":"","tensors":[],"fault":{"tensor":"model.w","index":[1],"ranks":[1],"text":"it is wrong"}}` + "\n"
	if err := os.WriteFile(fault, []byte(lines[0]+lines[1]+ended), 0o666); err != nil {
		t.Fatal(err)
	}
	listed := func(from, out string) string {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(string(text), "\n")
		path := filepath.Join(t.TempDir(), "operators")
		list := `,"operators":[{"op":"Add","line":"x/y.go:1","in":["01","02"],"out":"03"},` +
			`{"op":"Exp","line":"x/y.go:2","backward":true,"in":["03"],"out":"` + out + `"}]}` + "\n"
		if err := os.WriteFile(path, []byte(lines[0]+lines[1]+strings.TrimSuffix(lines[2], "}\n")+list), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	opsA, opsB := listed(a, "04"), listed(a, "05")
	for _, c := range []struct {
		args     []string
		status   int
		out, err string
	}{
		{[]string{a, a}, 0, "nothing differs in 2 steps\n", ""},
		{[]string{a, b}, 1, "A is " + a + "\nB is " + b + "\nthe first difference is at step 2 (1 before it are equal)\n" +
			"  loss: 2 in A, 2.5 in B\n  model.w: float32 [2], in element 1\n", ""},
		{[]string{"-json", a, b}, 1, `{"compared":2,"step":2,"loss":["2","2.5"],` +
			`"tensors":[{"name":"model.w","types":["float32 [2]"],"ranges":[[1,2]]}]}` + "\n", ""},
		{[]string{a, fault}, 1, "A is " + a + "\nB is " + fault + "\nthe first difference is at step 2 (1 before it are equal)\n" +
			"  B ended there: it is wrong\n", ""},
		{[]string{opsA, opsA}, 0, "nothing differs in 2 steps\n", ""},
		{[]string{opsA, a}, 0, "nothing differs in 2 steps\n", ""},
		{[]string{opsA, opsB}, 1, "A is " + opsA + "\nB is " + opsB + "\nthe first difference is at step 2 (1 before it are equal)\n" +
			"  operator 2 of 2, gradient of Exp at x/y.go:2: its inputs are equal, its output is not\n", ""},
		{[]string{"-json", opsA, opsB}, 1, `{"compared":2,"step":2,"tensors":null,` +
			`"operator":{"number":2,"of":2,"op":"Exp","line":"x/y.go:2","backward":true}}` + "\n", ""},
		{[]string{a}, 2, "", "gorun diff: 1 paths given; give two\n" + diffUsage},
		{[]string{a, "nowhere"}, 2, "", "gorun diff: checkpoint: Diff: nowhere: stat nowhere: no such file or directory\n"},
		{[]string{"-h"}, 0, diffUsage, ""},
	} {
		var out, errs strings.Builder
		if status := diff(c.args, &out, &errs); status != c.status || out.String() != c.out || errs.String() != c.err {
			t.Errorf("%q: status %d, want %d\n%s\n%s", c.args, status, c.status, out.String(), errs.String())
		}
	}
}
