package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/gorun-spmd/gorun/checkpoint"
)

const diffUsage = `usage: gorun diff [-json] A B

Compares two runs, from the files that gorun --digest wrote, or two checkpoints or
models, and names the first step at which they differ, the tensors, and the elements;
with gorun --digest-ops the first operator too whose output alone differs.
Of a folder of checkpoints it takes the newest.

  -json    print the difference as one line of JSON

The exit status is 0 if nothing differs, 1 if something does, 2 after an error.
`

// most is how many tensors a person is shown.
const most = 20

// diff is the command gorun diff. It returns the exit status.
func diff(args []string, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("gorun diff", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	asJSON := f.Bool("json", false, "")
	err := f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, diffUsage)
		return 0
	case err == nil && f.NArg() != 2:
		err = fmt.Errorf("%d paths given; give two", f.NArg())
	}
	if err != nil {
		fmt.Fprintf(stderr, "gorun diff: %v\n%s", err, diffUsage)
		return 2
	}
	d, err := checkpoint.Diff(f.Arg(0), f.Arg(1))
	if err == nil {
		if *asJSON {
			err = json.NewEncoder(stdout).Encode(d)
		} else {
			_, err = io.WriteString(stdout, describe(d, f.Arg(0), f.Arg(1)))
		}
	}
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "gorun diff: %v\n", err)
		return 2
	case !d.Equal():
		return 1
	}
	return 0
}

// describe writes a difference for a person.
func describe(d *checkpoint.Difference, a, b string) string {
	if d.Equal() && d.Compared == 1 {
		return "nothing differs\n"
	}
	if d.Equal() {
		return fmt.Sprintf("nothing differs in %d steps\n", d.Compared)
	}
	var s strings.Builder
	fmt.Fprintf(&s, "A is %s\nB is %s\n", a, b)
	fmt.Fprintf(&s, "the first difference is at step %d", d.Step)
	if d.Compared > 1 {
		fmt.Fprintf(&s, " (%d before it are equal)", d.Compared-1)
	}
	s.WriteString("\n")
	for i, f := range []*checkpoint.Fault{d.FaultA, d.FaultB} {
		if f != nil {
			fmt.Fprintf(&s, "  %c ended there: %s\n", 'A'+i, f.Text)
		}
	}
	if d.Operator != nil {
		fmt.Fprintf(&s, "  %v\n", d.Operator)
	}
	if len(d.Loss) == 2 {
		fmt.Fprintf(&s, "  loss: %s in A, %s in B\n", d.Loss[0], d.Loss[1])
	}
	for i, t := range d.Tensors {
		if i == most {
			fmt.Fprintf(&s, "  and %d more tensors; -json lists all\n", len(d.Tensors)-most)
			break
		}
		fmt.Fprintf(&s, "  %s: %s\n", t.Name, tensorLine(&t))
	}
	only := func(where string, names []string) {
		for i, name := range names {
			if i == most {
				fmt.Fprintf(&s, "  and %d more in %s alone\n", len(names)-most, where)
				break
			}
			fmt.Fprintf(&s, "  %s: in %s alone\n", name, where)
		}
	}
	only("A", d.MissingB)
	only("B", d.MissingA)
	return s.String()
}

// tensorLine says how a tensor differs.
func tensorLine(t *checkpoint.TensorDifference) string {
	if len(t.Types) == 2 {
		return fmt.Sprintf("%s in A, %s in B", t.Types[0], t.Types[1])
	}
	if t.Elements == 0 {
		first := t.Ranges[0]
		text := fmt.Sprintf("%s, in elements %d to %d", t.Types[0], first[0], first[1]-1)
		if first[1]-first[0] == 1 {
			text = fmt.Sprintf("%s, in element %d", t.Types[0], first[0])
		}
		if n := len(t.Ranges); n > 1 {
			text += fmt.Sprintf(", and in %d more such ranges", n-1)
		}
		return text
	}
	text := fmt.Sprintf("%s, %d elements differ, by up to %d ULP; the first is %v: %s in A, %s in B", t.Types[0], t.Elements, t.ULPs, t.Index,
		t.Values[0], t.Values[1])
	if t.Elements == 1 {
		text = fmt.Sprintf("%s, element %v differs by %d ULP: %s in A, %s in B", t.Types[0], t.Index, t.ULPs, t.Values[0], t.Values[1])
	}
	if t.NaNs > 0 {
		text += fmt.Sprintf("; %d are no numbers", t.NaNs)
	}
	return text
}
