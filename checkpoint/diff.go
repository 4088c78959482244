package checkpoint

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/gorun-spmd/gorun/tensor"
)

// A Difference is what Diff found. Two runs or checkpoints are equal if Equal says so.
type Difference struct {
	// Compared is how many steps both files of digests have, with the one that a fault ended; for checkpoints it is 1.
	Compared int `json:"compared"`
	// Step is the first one that differs, or that of the checkpoints.
	Step int `json:"step"`
	// Loss has the losses of that step if they differ.
	Loss []string `json:"loss,omitempty"`
	// Tensors are those that differ.
	Tensors []TensorDifference `json:"tensors"`
	// Missing are the names that A or B alone has.
	MissingA []string `json:"missing_a,omitempty"`
	MissingB []string `json:"missing_b,omitempty"`
	// Operator is the first one of that step whose inputs are the same and whose output is not, if both runs list operators; see
	// DigestLog.Operators.
	Operator *OperatorDifference `json:"operator,omitempty"`
	// FaultA and FaultB are what ended A or B in that step, if its file says so.
	FaultA *Fault `json:"fault_a,omitempty"`
	FaultB *Fault `json:"fault_b,omitempty"`
}

// Equal reports whether nothing differs.
func (d *Difference) Equal() bool {
	return len(d.Loss)+len(d.Tensors)+len(d.MissingA)+len(d.MissingB) == 0 && d.Operator == nil && d.FaultA == nil && d.FaultB == nil
}

// A TensorDifference says how a tensor differs. Digests tell the ranges alone; of two
// checkpoints the elements are known too.
type TensorDifference struct {
	Name   string   `json:"name"`
	Types  []string `json:"types"`            // of A and B, one if they are the same: "float32 [64, 192]"
	Ranges [][2]int `json:"ranges,omitempty"` // of elements in row-major order: from the first one to before the last one

	Elements int      `json:"elements,omitempty"` // how many differ
	Index    []int    `json:"index,omitempty"`    // of the first one
	Values   []string `json:"values,omitempty"`   // of the first one in A and in B, with their bits
	ULPs     uint64   `json:"ulps,omitempty"`     // the largest distance in units in the last place; for integers the largest difference
	NaNs     int      `json:"nans,omitempty"`     // elements of which one alone is NaN, or whose NaNs differ
}

// Diff compares what lies at paths a and b: two files that a DigestLog wrote, or two checkpoints
// or models as Load takes them. Of a folder of several checkpoints it takes the newest. It needs
// no ranks and, of checkpoints, memory for some MiB.
func Diff(a, b string) (*Difference, error) {
	d, err := diff(a, b)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: Diff: %w", err)
	}
	return d, nil
}

func diff(a, b string) (*Difference, error) {
	runs := [2]*digestRun{}
	for i, path := range []string{a, b} {
		run, err := digestFile(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		runs[i] = run
	}
	switch {
	case runs[0] != nil && runs[1] != nil:
		return diffRuns(runs[0], runs[1])
	case runs[0] != nil || runs[1] != nil:
		return nil, fmt.Errorf("%s and %s: one is a file of digests and the other is not; give two of a kind", a, b)
	}
	return diffCheckpoints(osFS{}, a, b)
}

// digestFile reads the file of digests at path; nil if it is none.
func digestFile(path string) (*digestRun, error) {
	info, err := os.Stat(path)
	if err != nil || info.IsDir() {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	begin := make([]byte, 64)
	n, err := io.ReadFull(f, begin)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if !bytes.Contains(begin[:n], []byte(digestFormat)) {
		return nil, nil
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return readDigests(f)
}

// diffRuns returns the first step at which two runs differ.
func diffRuns(a, b *digestRun) (*Difference, error) {
	d := &Difference{}
	steps := slices.Concat(a.steps, b.steps)
	slices.Sort(steps)
	for _, step := range slices.Compact(steps) {
		x, y := cmp.Or(a.lines[step], &digestLine{}), cmp.Or(b.lines[step], &digestLine{})
		ended := x.Loss == "" || y.Loss == "" // or there is no such line
		if ended && x.Fault == nil && y.Fault == nil {
			continue
		}
		d.Compared, d.Step = d.Compared+1, step
		if x.Fault == nil || y.Fault == nil || x.Fault.Text != y.Fault.Text {
			d.FaultA, d.FaultB = x.Fault, y.Fault
		}
		if ended {
			if d.Equal() {
				continue
			}
			return d, nil
		}
		if x.Loss != y.Loss {
			d.Loss = []string{x.Loss, y.Loss}
		}
		if err := d.digests(x, y); err != nil {
			return nil, fmt.Errorf("step %d: %w", step, err)
		}
		d.operators(x, y)
		if !d.Equal() {
			return d, nil
		}
	}
	if d.Compared == 0 {
		return nil, errors.New("the files have no step in common")
	}
	return d, nil
}

// digests compares the tensors of a step.
func (d *Difference) digests(x, y *digestLine) error {
	byName := map[string]*digestEntry{}
	for i := range y.Tensors {
		byName[y.Tensors[i].Name] = &y.Tensors[i]
	}
	for i := range x.Tensors {
		e, f := &x.Tensors[i], byName[x.Tensors[i].Name]
		if f == nil {
			d.MissingB = append(d.MissingB, e.Name)
			continue
		}
		delete(byName, e.Name)
		a, err := e.digest()
		if err != nil {
			return err
		}
		b, err := f.digest()
		if err != nil {
			return err
		}
		if a.equal(&b) {
			continue
		}
		t := TensorDifference{Name: e.Name, Types: types(a.DType, a.Shape, b.DType, b.Shape)}
		if len(t.Types) == 1 {
			t.Ranges = ranges(&a, &b)
		}
		d.Tensors = append(d.Tensors, t)
	}
	for _, f := range y.Tensors {
		if byName[f.Name] != nil {
			d.MissingA = append(d.MissingA, f.Name)
		}
	}
	return nil
}

// types describes two tensors, once if they are alike.
func types(d tensor.DType, s []int, e tensor.DType, u []int) []string {
	a, b := fmt.Sprint(d, " ", s), fmt.Sprint(e, " ", u)
	if a == b {
		return []string{a}
	}
	return []string{a, b}
}

// ranges returns the ranges that differ; those beside each other as one.
func ranges(a, b *Digest) [][2]int {
	var list [][2]int
	each, n := RangeElems(a.Shape), numel(a.Shape)
	for r := range a.Ranges {
		if a.Ranges[r] != b.Ranges[r] {
			list = addRange(list, r*each, min((r+1)*each, n))
		}
	}
	return list
}

func addRange(list [][2]int, lo, hi int) [][2]int {
	if last := len(list) - 1; last >= 0 && list[last][1] == lo {
		list[last][1] = hi
		return list
	}
	return append(list, [2]int{lo, hi})
}

// diffCheckpoints compares two checkpoints or models element by element.
func diffCheckpoints(fs fileSystem, a, b string) (*Difference, error) {
	var readers [2]*reader
	for i, path := range []string{a, b} {
		if all, err := list(fs, path); err == nil && len(all) > 0 {
			path = all[len(all)-1].Dir
		}
		dir, plain, text, err := findIndex(fs, path)
		if err != nil {
			return nil, err
		}
		x, err := decodeIndex(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, name := range slices.Sorted(maps.Keys(x.Unread)) {
			return nil, fmt.Errorf("%s: tensor %q is of type %s, which cannot be compared", path, name, x.Unread[name])
		}
		readers[i] = newReader(fs, dir, plain, x)
		defer readers[i].close()
	}
	x, y := readers[0], readers[1]
	d := &Difference{Compared: 1, Step: x.x.Step}
	byName := y.x.byName()
	for i := range x.x.Tensors {
		e, f := &x.x.Tensors[i], byName[x.x.Tensors[i].Name]
		if f == nil {
			d.MissingB = append(d.MissingB, e.Name)
			continue
		}
		delete(byName, e.Name)
		t := TensorDifference{Name: e.Name, Types: types(e.dtype(), e.Shape, f.dtype(), f.Shape)}
		if len(t.Types) == 1 {
			if err := t.compare(x, e, y, f); err != nil {
				return nil, err
			}
		}
		if len(t.Types) == 2 || t.Elements > 0 {
			d.Tensors = append(d.Tensors, t)
		}
	}
	for i := range y.x.Tensors {
		if name := y.x.Tensors[i].Name; byName[name] != nil {
			d.MissingA = append(d.MissingA, name)
		}
	}
	return d, nil
}

// compare compares the elements of a tensor in two files.
func (t *TensorDifference) compare(x *reader, e *tensorEntry, y *reader, f *tensorEntry) error {
	dt, at := e.dtype(), 0
	elem, each := dt.Size(), RangeElems(e.Shape)
	for s := range slabs(e.Shape, slabElems) {
		a, err := x.box(e, s)
		if err != nil {
			return err
		}
		b, err := y.box(f, s)
		if err != nil {
			return err
		}
		for i := 0; i < len(a); i += elem {
			if p, q := element(a[i:], dt), element(b[i:], dt); p != q {
				t.add(dt, at+i/elem, e.Shape, p, q)
				lo := (at + i/elem) / each * each
				if last := len(t.Ranges) - 1; last < 0 || t.Ranges[last][1] <= lo {
					t.Ranges = addRange(t.Ranges, lo, min(lo+each, numel(e.Shape)))
				}
			}
		}
		at += len(a) / elem
	}
	return nil
}

// add notes that an element differs.
func (t *TensorDifference) add(dt tensor.DType, at int, shape []int, a, b uint64) {
	if t.Elements == 0 {
		t.Index, t.Values = tensor.UnravelIndex(at, shape), []string{showBits(dt, a), showBits(dt, b)}
	}
	t.Elements++
	if n, ok := ulps(dt, a, b); ok {
		t.ULPs = max(t.ULPs, n)
	} else {
		t.NaNs++
	}
}

// box returns the elements of a box of a tensor, dense and row-major.
func (r *reader) box(e *tensorEntry, want box) ([]byte, error) {
	elem := e.dtype().Size()
	out := make([]byte, want.numel()*elem)
	var block []byte
	for i := range e.Chunks {
		c := &e.Chunks[i]
		have := c.box()
		bytes := have.numel() * elem
		loaded := -1
		for u := range runs(have, want) {
			for done := 0; done < u.n*elem; {
				at := u.x*elem + done
				if k := at / r.x.BlockBytes; k != loaded {
					block = resize(block, r.x.blockBytes(k, bytes))
					if err := r.block(block, e, c, k); err != nil {
						return nil, err
					}
					loaded = k
				}
				done += copy(out[u.y*elem+done:(u.y+u.n)*elem], block[at-loaded*r.x.BlockBytes:])
			}
		}
	}
	return out, nil
}
