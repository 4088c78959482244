package programtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/checkpoint"
)

// A Flip is a bit of a tensor that is flipped on one rank as a step begins; or of all products in it, see examples/train.
type Flip struct {
	Ranks   int
	Flags   []string // for gorun
	Args    []string
	Every   int // steps between two lines of digests
	Step    int
	Rank    int
	Tensor  string // "": of products
	Element int    // of what the rank holds

	Found int   // the step in which it is found
	Index []int // of the element in the whole tensor
}

// FindsFlips runs the program with digests, and again with a flip. It checks that the second run ends by an error that names the
// step, tensor, element and rank, and that gorun diff of the digests of both names the same.
func (p *Program) FindsFlips(t *testing.T, flips []Flip, args ...string) {
	for _, f := range flips {
		t.Run(fmt.Sprint(f.Ranks, f.Flags, f.Args, f.Tensor), func(t *testing.T) {
			run := func(file string, env ...string) *Job {
				j := p.command(f.Ranks, append(f.Flags[:len(f.Flags):len(f.Flags)], "--digest", file, "--digest-every", strconv.Itoa(f.Every)),
					slices.Concat(args, []string{"-steps", strconv.Itoa(f.Found + 2)}, f.Args))
				// Replicas are compared by the time too, which would find a flip before the digests do.
				j.Env = append(append(j.Env, "GORUN_CHECK=0"), env...)
				_ = j.Run() // the status says it
				return j
			}
			dir := t.TempDir()
			good, bad := filepath.Join(dir, "good"), filepath.Join(dir, "bad")
			if j := run(good); j.ProcessState.ExitCode() != 0 {
				t.Fatalf("without a flip: %s", &j.Stderr)
			}
			flip := fmt.Sprintf("GORUN_TEST_FLIP=%d:%d:%s:%d", f.Step, f.Rank, f.Tensor, f.Element)
			words := []string{fmt.Sprint("step ", f.Found, ":"), fmt.Sprint("on rank ", f.Rank)}
			if f.Tensor == "" {
				flip = fmt.Sprintf("GORUN_TEST_FLIP_PRODUCT=%d:%d:all", f.Step, f.Rank)
				words = append(words, "product ")
			} else {
				words = append(words, fmt.Sprintf("tensor %q", f.Tensor), fmt.Sprint("element ", f.Index))
			}
			j := run(bad, flip)
			if j.ProcessState.ExitCode() != 1 {
				t.Fatalf("status %d\n%s", j.ProcessState.ExitCode(), &j.Stderr)
			}
			for _, word := range words {
				if !strings.Contains(j.Stderr.String(), word) {
					t.Errorf("the error does not say %q:\n%s", word, &j.Stderr)
				}
			}
			out, err := exec.Command(filepath.Join(p.folder, "gorun"), "diff", "-json", good, bad).Output()
			var d checkpoint.Difference
			if wrong := json.Unmarshal(out, &d); wrong != nil {
				t.Fatalf("gorun diff: %v, %v: %s", err, wrong, out)
			}
			b := d.FaultB
			if d.Step != f.Found || d.FaultA != nil || b == nil || !slices.Contains(b.Ranks, f.Rank) ||
				f.Tensor != "" && (b.Tensor != f.Tensor || !slices.Equal(b.Index, f.Index)) ||
				f.Tensor == "" && (b.Product == "" || !strings.Contains(j.Stderr.String(), "product "+b.Product)) {
				t.Errorf("gorun diff: %s", out)
			}
		})
	}
}

// A WrongProduct is a product of a run of which a bit is flipped on one rank, see examples/train, and the operator that it is of.
type WrongProduct struct {
	Ranks    int
	Args     []string
	Rank     int
	Product  int // its number among those that the rank computes in a step
	Op       string
	Backward bool
}

// NamesOperators runs the program with digests of operators, in all of the ways, which must write the same; and again with each
// wrong product in step 2. It checks that gorun diff names the operator.
func (p *Program) NamesOperators(t *testing.T, ways []Way, wrong []WrongProduct, args ...string) {
	dir := t.TempDir()
	run := func(t *testing.T, name string, ranks int, more []string, env ...string) (file string, lines []byte) {
		file = filepath.Join(dir, name)
		j := p.command(ranks, []string{"--same-bits", "--digest", file, "--digest-every", "2", "--digest-ops"},
			slices.Concat(args, []string{"-steps", "2"}, more))
		j.Env = append(j.Env, env...)
		if err := j.Run(); err != nil {
			t.Fatalf("%v: %v\n%s", j.Args, err, &j.Stderr)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, lines, _ = bytes.Cut(text, []byte("\n")) // the header says the number of ranks
		return file, lines
	}
	one, want := run(t, "one", 1, nil)
	if !bytes.Contains(want, []byte(`"backward":true`)) {
		t.Errorf("no operators are listed: %s", want)
	}
	for i, w := range ways {
		if _, got := run(t, fmt.Sprint("way", i), w.Ranks, w.Args); !bytes.Equal(got, want) {
			t.Errorf("%v: the file is not that of one rank", w)
		}
	}
	for i, w := range wrong {
		bad, _ := run(t, fmt.Sprint("wrong", i), w.Ranks, w.Args, fmt.Sprintf("GORUN_TEST_FLIP_PRODUCT=2:%d:%d", w.Rank, w.Product))
		out, err := exec.Command(filepath.Join(p.folder, "gorun"), "diff", "-json", one, bad).Output()
		var d checkpoint.Difference
		if wrong := json.Unmarshal(out, &d); wrong != nil {
			t.Fatalf("gorun diff: %v, %v: %s", err, wrong, out)
		}
		if o := d.Operator; o == nil || o.Op != w.Op || o.Backward != w.Backward || o.Other != "" || !strings.Contains(o.Line, "train/") {
			t.Errorf("product %d of rank %d: gorun diff: %s", w.Product, w.Rank, out)
		}
	}
}
