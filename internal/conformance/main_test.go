package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestThroughGorun runs every case as processes over shared memory.
func TestThroughGorun(t *testing.T) {
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin, "../../cmd/gorun", ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := func(n int, args ...string) (out string, status int) {
		cmd := exec.Command(filepath.Join(bin, "gorun"), append([]string{"-np", strconv.Itoa(n), filepath.Join(bin, "conformance")}, args...)...)
		text, _ := cmd.CombinedOutput()
		return string(text), cmd.ProcessState.ExitCode()
	}
	passed := regexp.MustCompile(`(?m)^(\d+) passed, 0 failed$`)
	for _, n := range []int{1, 2, 3, 4} {
		out, status := run(n, "-resize", "testdata")
		m := passed.FindStringSubmatch(out)
		if status != 0 || m == nil {
			t.Errorf("np %d: exit status %d\n%s", n, status, out)
			continue
		}
		if count, _ := strconv.Atoi(m[1]); count < 700 {
			t.Errorf("np %d: only %d cases", n, count)
		}
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
