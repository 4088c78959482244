package checkpoint

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// A Mapping says where in a model of others a tensor of the State lies: under another
// name, transposed, or as a part of a larger tensor. GPT-2's queries, keys and values,
// for instance, are one matrix [In, 3·C], transposed and beside each other:
//
//	{Name: "h.*.attn.q.*", File: "h.*.attn.c_attn.*", Transpose: true, Dim: -1, Start: 0, Fused: 3 * C},
//	{Name: "h.*.attn.k.*", File: "h.*.attn.c_attn.*", Transpose: true, Dim: -1, Start: C, Fused: 3 * C},
//	{Name: "h.*.attn.v.*", File: "h.*.attn.c_attn.*", Transpose: true, Dim: -1, Start: 2 * C, Fused: 3 * C},
//
// Tied weights are two names in the State with one in the file; Load fills both, and
// Export writes a State that has one of them.
type Mapping struct {
	// Name is the name in the State. A * stands for one or more characters that are not
	// dots: for one part of a name, such as the number of a layer.
	Name string
	// File is the name in the file. Each * in it is what the * of Name stands for that
	// is as far from the left.
	File string
	// Transpose says that the file has the last two dimensions exchanged. A tensor of
	// one dimension, a bias, is as it is.
	Transpose bool
	// Fused, if it is not 0, says that the tensor is part of one that has Fused
	// elements along its dimension Dim, of which the part has those from Start on. Dim
	// counts the file's dimensions; a negative one counts from the end.
	Dim, Start, Fused int
}

// A member is a tensor of the State and where it lies in the file's tensor.
type member struct {
	namedTensor
	at Mapping // Dim is not negative
}

// A fileTensor is a tensor of a file and what the State has of it.
type fileTensor struct {
	name    string
	shape   []int
	entry   *tensorEntry // where it is in a file to load
	members []member
}

// arrange returns the tensors of a file that have those of the State, in the order of
// the State. The first mapping that fits a name holds; rename names the others. It
// returns an error for a mapping that cannot be applied.
func arrange(tensors []namedTensor, maps []Mapping, rename func(name string) string) ([]fileTensor, error) {
	patterns := make([]*regexp.Regexp, len(maps))
	for i, m := range maps {
		if strings.Count(m.File, "*") > strings.Count(m.Name, "*") || m.Name == "" || m.File == "" {
			return nil, fmt.Errorf("mapping %d, of %q to %q: give both names, and no more * in File than in Name", i, m.Name, m.File)
		}
		patterns[i] = patternOf(m.Name)
	}
	var files []fileTensor
	index := map[string]int{}
	for _, t := range tensors {
		name, at := "", Mapping{}
		for i, p := range patterns {
			if stars := p.FindStringSubmatch(t.name); stars != nil {
				name, at = maps[i].File, maps[i]
				for _, s := range stars[1:] {
					name = strings.Replace(name, "*", s, 1)
				}
				break
			}
		}
		if name == "" {
			name = rename(t.name)
		}
		m := member{t, at}
		shape, err := m.locate()
		if err != nil {
			return nil, err
		}
		i, ok := index[name]
		if !ok {
			i = len(files)
			index[name], files = i, append(files, fileTensor{name: name, shape: shape})
		}
		files[i].members = append(files[i].members, m)
	}
	return files, nil
}

// patternOf compiles a name with stars; what they stand for are its groups.
func patternOf(name string) *regexp.Regexp {
	return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(name), `\*`, `([^.]+)`) + "$")
}

// locate returns the shape that the file's tensor has to have, and makes Dim one that
// counts from the front.
func (m *member) locate() (shape []int, err error) {
	shape = m.exchanged(m.shape())
	if m.at.Fused == 0 {
		return shape, nil
	}
	d := m.at.Dim
	if d < 0 {
		d += len(shape)
	}
	if d < 0 || d >= len(shape) || m.at.Start < 0 || m.at.Start+shape[d] > m.at.Fused {
		return nil, fmt.Errorf("mapping of %q to %q: %q, which is %v there, cannot be the part from %d on of dimension %d of %d elements",
			m.at.Name, m.at.File, m.name, shape, m.at.Start, m.at.Dim, m.at.Fused)
	}
	m.at.Dim, shape[d] = d, m.at.Fused
	return shape, nil
}

// exchanged returns a copy of a list with a number for each dimension of the State's
// tensor, in the order that the file's has.
func (m *member) exchanged(list []int) []int {
	list = slices.Clone(list)
	if n := len(list); m.at.Transpose && n > 1 {
		list[n-1], list[n-2] = list[n-2], list[n-1]
	}
	return list
}

// transposed reports whether the file has the elements in another order.
func (m *member) transposed() bool { return m.at.Transpose && len(m.shape()) > 1 }

// placed returns where a box of the State's tensor is in the file's.
func (m *member) placed(b box) box {
	b = box{m.exchanged(b.offset), m.exchanged(b.size)}
	if m.at.Fused > 0 {
		b.offset[m.at.Dim] += m.at.Start
	}
	return b
}

// boxes returns what this rank holds of the file's tensor.
func (f *fileTensor) boxes() []box {
	var list []box
	for i := range f.members {
		for _, b := range f.members[i].namedTensor.boxes() {
			list = append(list, f.members[i].placed(b))
		}
	}
	return list
}

// dtype returns the type of the State's elements.
func (f *fileTensor) dtype() tensor.DType { return f.members[0].dtype() }

// tryParts returns parts, or the error that it throws.
func (f *fileTensor) tryParts() (parts []localPart, err error) {
	defer fault.Catch(&err)
	return f.parts(), nil
}

// parts returns what this rank holds of the file's tensor, with its elements in the
// file's order. Those of a transposed tensor are a copy. It throws if a tensor's memory
// is gone.
func (f *fileTensor) parts() []localPart {
	var list []localPart
	for i := range f.members {
		m := &f.members[i]
		for _, p := range m.namedTensor.parts() {
			if m.transposed() {
				p.data = tensor.Transpose(p.data, -2, -1)
			}
			list = append(list, localPart{m.placed(p.box), p.data, p.rows})
		}
	}
	return list
}

// complete returns an error unless the members fill the file's tensor, each element once.
func (f *fileTensor) complete() error {
	parts := slices.Clone(f.members)
	slices.SortFunc(parts, func(a, b member) int { return cmp.Compare(a.at.Start, b.at.Start) })
	next := 0
	for i := range parts {
		m := &parts[i]
		shape, err := m.locate()
		switch {
		case err != nil:
			return err
		case !slices.Equal(shape, f.shape) || m.dtype() != parts[0].dtype() || m.at.Dim != parts[0].at.Dim:
			return fmt.Errorf("%q and %q are to be one tensor %q, and differ in type or shape", parts[0].name, m.name, f.name)
		case m.at.Fused == 0 && len(parts) > 1:
			return fmt.Errorf("%q and %q are both to be %q; leave one of two tied weights out", parts[0].name, parts[1].name, f.name)
		case m.at.Fused == 0:
			return nil
		case m.at.Start != next:
			return fmt.Errorf("elements %d to %d of dimension %d of %q come from no tensor, or from two; the mappings do not fit",
				min(next, m.at.Start), max(next, m.at.Start), m.at.Dim, f.name)
		}
		next += m.exchanged(m.shape())[m.at.Dim]
	}
	if next != f.shape[parts[0].at.Dim] {
		return fmt.Errorf("%q has %d of the %d elements of dimension %d; the mappings do not fit", f.name, next, f.shape[parts[0].at.Dim],
			parts[0].at.Dim)
	}
	return nil
}
