//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestParseTakesResultsOnly(t *testing.T) {
	lines, err := parse(strings.NewReader("a warning\n" + `{"name":"add","ns":900,"op_ns":9}` + "\n" + `{"loss":1}` + "\n" +
		`{"name":"all_reduce","bytes":8,"ns":2}` + "\n{broken\n"))
	if err != nil || len(lines) != 2 {
		t.Fatalf("%v %v, want two results", lines, err)
	}
	if lines[0].NS != 9 || lines[0].key() != "add" || lines[1].key() != "all_reduce/8" {
		t.Errorf("got %+v", lines)
	}
}

func TestTable(t *testing.T) {
	var table table
	for round, ns := range []float64{10, 1000, 30} { // the second round was disturbed, for both
		table.add(round, ours, []line{{Name: "x", NS: ns}, {Name: "y", NS: 5}})
		table.add(round, "peer", []line{{Name: "x", NS: 4 * ns}, {Name: "x", NS: 3 * ns}, {Name: "y", Unsupported: "no"}, {Name: "z", NS: 1}})
	}
	f, ok := table.figure("x", "peer")
	if !ok || f.NS != 90 || f.Ratio != 3 || f.Rounds != 3 {
		t.Errorf("got %+v %v, want the faster form's median 90 and the ratio 3", f, ok)
	}
	if _, ok := table.figure("z", ours); ok {
		t.Error("a case that we do not measure has a figure")
	}
	var out bytes.Buffer
	if err := table.write(&out); err != nil {
		t.Fatal(err)
	}
	want := "" +
		"  µs (ratio to gorun)  gorun         peer\n" +
		"                    x   0.03  0.09 (3.00)\n" +
		"                    y   0.01  unsupported\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestOneFailureEndsTheRun(t *testing.T) {
	p := &program{name: "p", ranks: func() []*exec.Cmd {
		return []*exec.Cmd{
			exec.Command("sh", "-c", `echo '{"name":"a","ns":1}'; sleep 60`),
			exec.Command("sh", "-c", "sleep 0.2; echo first >&2; echo it broke >&2; exit 3"),
		}
	}}
	start := time.Now()
	lines, err := p.run(context.Background())
	if err == nil || !strings.Contains(err.Error(), "exit status 3: it broke") {
		t.Errorf("error %v, want the rank's last words", err)
	}
	if len(lines) != 1 {
		t.Errorf("%d lines, want the one that was printed before", len(lines))
	}
	if time.Since(start) > 30*time.Second {
		t.Error("the other process was waited for")
	}
}

func TestLateProgramKeepsWhatItPrinted(t *testing.T) {
	p := one("p", func() *exec.Cmd { return exec.Command("sh", "-c", `echo '{"name":"a","ns":1}'; sleep 60`) })
	late := errors.New("too late")
	ctx, cancel := context.WithTimeoutCause(context.Background(), 500*time.Millisecond, late)
	defer cancel()
	lines, err := p.run(ctx)
	if !errors.Is(err, late) || len(lines) != 1 {
		t.Errorf("%d lines and error %v, want the one line and why it was ended", len(lines), err)
	}
}

func TestVersion(t *testing.T) {
	if got := version(exec.Command("echo", "mpirun (Open MPI) 4.1.4")); got != "Open MPI 4.1.4" {
		t.Errorf("got %q", got)
	}
	if got := version(exec.Command("no-such-mpirun")); got != "MPI" {
		t.Errorf("got %q", got)
	}
}

func TestMissingIsSaid(t *testing.T) {
	if _, err := compiled("Some MPI", "no-such-compiler", t.TempDir(), nil, "coll.c", nil); err == nil ||
		err.Error() != "Some MPI (no no-such-compiler on PATH)" {
		t.Errorf("error %v", err)
	}
	found, missing := place(nil, nil, nil, errors.New("Some MPI (gone)"), nil)
	if len(found) != 0 || len(missing) != 1 {
		t.Errorf("found %v, missing %v", found, missing)
	}
}
