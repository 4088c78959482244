package main

import (
	"bytes"
	"context"
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

// build puts gorun and this program into a folder.
func build(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	testenv.Build(t, folder, nil, "../../cmd/gorun", ".")
	return folder
}

var passed = regexp.MustCompile(`(?m)^(\d+) passed, 0 failed$`)

// allPassed fails the test unless all cases of a run did, and they were many.
func allPassed(t *testing.T, what, out string, err error) {
	t.Helper()
	m := passed.FindStringSubmatch(out)
	if err != nil || m == nil {
		t.Errorf("%s: %v\n%s", what, err, out)
		return
	}
	if count, _ := strconv.Atoi(m[1]); count < 700 {
		t.Errorf("%s: only %d cases", what, count)
	}
}

// TestThroughMPI runs every case over real MPI libraries, with the binary that
// gorun runs.
func TestThroughMPI(t *testing.T) {
	bin := build(t)
	for _, launcher := range [][]string{
		{"mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "-np"},
		{"mpirun.openmpi5", "--oversubscribe", "--allow-run-as-root", "-np"},
		{"mpiexec.hydra", "-n"},
	} {
		t.Run(launcher[0], func(t *testing.T) {
			testenv.NeedPrograms(t, launcher[0])
			if launcher[0] == "mpirun.openmpi5" { // of another Debian, in a mount namespace
				testenv.NeedNamespaces(t, "--mount")
			}
			for _, n := range []int{2, 4} {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				cmd := exec.CommandContext(ctx, launcher[0],
					append(launcher[1:], strconv.Itoa(n), filepath.Join(bin, "conformance"), "-resize", "testdata")...)
				out, err := cmd.CombinedOutput()
				cancel()
				allPassed(t, cmd.String(), string(out), err)
			}
		})
	}
}

// TestThroughGorun runs every case as processes over shared memory.
func TestThroughGorun(t *testing.T) {
	bin := build(t)
	run := func(n int, args ...string) (out string, status int) {
		cmd := exec.Command(filepath.Join(bin, "gorun"), append([]string{"-np", strconv.Itoa(n), filepath.Join(bin, "conformance")}, args...)...)
		text, _ := cmd.CombinedOutput()
		return string(text), cmd.ProcessState.ExitCode()
	}
	for _, n := range []int{1, 2, 3, 4} {
		out, status := run(n, "-resize", "-bfloat16", "testdata")
		var err error
		if status != 0 {
			err = fmt.Errorf("exit status %d", status)
		}
		allPassed(t, fmt.Sprintf("np %d", n), out, err)
	}

	// A wrong expectation is found, named, and makes the exit status 1.
	text, err := os.ReadFile("testdata/relu.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	spoiled := filepath.Join(bin, "spoiled.jsonl")
	i := bytes.Index(text, []byte(`"expect":{"output":`))
	at := i + bytes.Index(text[i:], []byte(`"data":[`)) + len(`"data":[`)
	text = append(text[:at:at], append([]byte("7"), text[at:]...)...)
	if err := os.WriteFile(spoiled, text, 0o666); err != nil {
		t.Fatal(err)
	}
	out, status := run(4, spoiled)
	if status != 1 || !strings.Contains(out, "relu_001: rank 0: output") || !strings.Contains(out, "3 passed, 1 failed") {
		t.Errorf("spoiled: exit status %d\n%s", status, out)
	}
	if out, status := run(7, "testdata"); status != 1 || !strings.Contains(out, "no case") {
		t.Errorf("np 7: exit status %d\n%s", status, out)
	}
	if out, status := run(1, filepath.Join(bin, "missing")); status != 1 || !strings.Contains(out, "missing") {
		t.Errorf("missing: exit status %d\n%s", status, out)
	}
}

// TestFailedCaseSpoilsNoOther has cases among others that end their communicator:
// an index that one rank alone sees to be out of range, as is expected and not.
func TestFailedCaseSpoilsNoOther(t *testing.T) {
	bin := build(t)
	good, err := os.ReadFile("testdata/relu.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	good, _, _ = bytes.Cut(good, []byte("\n"))
	const pick = `{"name":"%s","op":"%s","mesh":{"shape":[2]},` +
		`"inputs":{"%s":{"dtype":"float32","shape":[3,1],"data":[1,2,3],"placements":["R"]},` +
		`"%s":{"dtype":"int64","shape":%s,"data":[0,1,2,0,1,7],"placements":["S(0)"]}},"args":{"dim":0},%s}` + "\n"
	const refused, output = `"expect":{"error":"OUT OF range"}`, `"expect":{"output":{"dtype":"float32","shape":[1],"data":[1]}}`
	var file []byte
	for i, line := range []string{
		fmt.Sprintf(pick, "gather_refused", "gather", "input", "index", "[6,1]", refused),
		fmt.Sprintf(pick, "gather_fails", "gather", "input", "index", "[6,1]", output),
		fmt.Sprintf(pick, "select_refused", "index_select", "input", "index", "[6]", refused),
		fmt.Sprintf(pick, "lookup_refused", "embedding", "weight", "input", "[6]", refused),
		fmt.Sprintf(pick, "lookup_fails", "embedding", "weight", "input", "[6]", output),
	} {
		file = fmt.Appendf(file, "%s\n%s", bytes.ReplaceAll(good, []byte("relu_001"), fmt.Appendf(nil, "good_%d", i)), line)
	}
	file = append(file, good...)
	path := filepath.Join(bin, "failing.jsonl")
	if err := os.WriteFile(path, file, 0o666); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 4; n++ {
		out, _ := exec.Command(filepath.Join(bin, "gorun"), "-np", strconv.Itoa(n), filepath.Join(bin, "conformance"), "-resize",
			path).CombinedOutput()
		var failed []string
		for _, m := range regexp.MustCompile(`(?m)^(\w+)(@\d)?: rank \d: `).FindAllSubmatch(out, -1) {
			failed = append(failed, string(m[1]))
		}
		if !slices.Equal(failed, []string{"gather_fails", "lookup_fails"}) || !bytes.Contains(out, []byte("\n9 passed, 2 failed")) {
			t.Errorf("np %d: failed: %v\n%s", n, failed, out)
		}
	}
}
