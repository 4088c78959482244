package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// LoadOptions relax what Load demands. The zero value demands that the names in
// the State and in the file are the same.
type LoadOptions struct {
	// AllowMissing leaves what the file does not have as it is.
	AllowMissing bool
	// AllowUnexpected ignores what the State does not ask for: the optimizer's
	// tensors when only the model is wanted.
	AllowUnexpected bool
	// Ignore lists names in the file that the State need not ask for, such as constants
	// that others save too. A * stands for one or more characters that are not dots.
	Ignore []string
	// Map says where the file has tensors that are not simply there under their own
	// names; the first Mapping whose Name fits holds.
	Map []Mapping
	// Rename gives the name in the file of a name in the State that no Mapping fits;
	// nil: they are the same.
	Rename func(name string) string

	host string // "": this machine's
}

// Load fills state from path, which is one of
//
//	the folder of one checkpoint               root/step-000123
//	a safetensors file                         model.safetensors
//	a folder with model.safetensors            as Hugging Face keeps models,
//	or model.safetensors.index.json            in one file or in several
//
// How many ranks wrote it and how its tensors lay does not matter: the ranks of a
// host read what their shards need, each byte once, hand each other what several
// of them need, and convert it if the element type differs. Tensors are written
// in place. Floating-point numbers are rounded to a narrower type; integers and Bool
// take only what they can hold: 1.5 is an error. A model may have tensors of other types,
// such as float8, as long as state does not ask for them.
//
// Load is collective over world. Rank 0's path counts. Its error, which names the file and the
// tensor, is the same on every rank: names that are missing or unexpected, a
// shape that differs, a file that is damaged or cut off. After an error in the
// reading itself tensors may have been changed in part; after one that the index
// alone shows nothing has.
//
// The files of a checkpoint are plain files in its folder: Load follows no
// symbolic link there. In a folder of Hugging Face's, whose cache is made of
// links, it does.
//
// In a program that runs for gorun plan, which has no numbers, it reads nothing: the file may be on
// the cluster alone, or be one that the program would have written.
func Load(ctx context.Context, world *comm.Comm, path string, state *State, o LoadOptions) (err error) {
	defer fault.Locate(&err)
	if isPlanned(world) {
		return nil
	}
	if _, err := load(ctx, world, osFS{}, path, state, o); err != nil {
		return fmt.Errorf("checkpoint: Load: %w", err)
	}
	return nil
}

func load(ctx context.Context, c *comm.Comm, fs fileSystem, path string, given *State, o LoadOptions) (*index, error) {
	dir, plain, x, err := shareIndex(ctx, c, fs, path)
	if err != nil {
		return nil, err
	}
	entries := x.byName()
	whole, done := given.asLoaded(ctx, func(name string) []int {
		if e := entries[o.name(name)]; e != nil {
			return e.Shape
		}
		return nil
	})
	sorted := whole.sorted() // the same order on every rank
	state := &sorted
	wanted, err := match(x, state, o)
	if err = agree(ctx, c, err); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := sameState(ctx, c, state); err != nil {
		return nil, err
	}
	if err := fill(ctx, c, newReader(fs, dir, plain, x), wanted, o.host); err != nil {
		return nil, err
	}
	for _, v := range state.values {
		if text, ok := x.Values[o.name(v.name)]; ok {
			if err := decodeValue(text, v.at); err != nil {
				return nil, fmt.Errorf("%s: value %q: %w", path, v.name, err)
			}
		}
	}
	if err := agree(ctx, c, done()); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return x, nil
}

// byName returns the tensors of x.
func (x *index) byName() map[string]*tensorEntry {
	entries := make(map[string]*tensorEntry, len(x.Tensors))
	for i := range x.Tensors {
		entries[x.Tensors[i].Name] = &x.Tensors[i]
	}
	return entries
}

// shareIndex reads the index on rank 0, for all ranks; dir is the folder of its
// files, and plain says that they are those of a plain model.
func shareIndex(ctx context.Context, c *comm.Comm, fs fileSystem, path string) (dir string, plain bool, x *index, err error) {
	kind := []int64{0}
	var text, folder []byte
	if c.Rank() == 0 {
		dir, plain, text, err = findIndex(fs, path)
		if folder = []byte(dir); plain {
			kind[0] = 1
		}
	}
	if err = agree(ctx, c, err); err != nil {
		return "", false, nil, err
	}
	if err = comm.Broadcast(ctx, c, kind, 0); err != nil {
		return "", false, nil, err
	}
	if folder, err = comm.BroadcastSlices(ctx, c, folder, 0); err != nil {
		return "", false, nil, err
	}
	if text, err = comm.BroadcastSlices(ctx, c, text, 0); err != nil {
		return "", false, nil, err
	}
	if x, err = decodeIndex(text); err != nil {
		if _, newer := errors.AsType[*versionError](err); !newer {
			err = asDamage(err)
		}
		return "", false, nil, fmt.Errorf("%s: %w", filepath.Join(path, indexName), err)
	}
	return string(folder), kind[0] == 1, x, nil
}

func (o LoadOptions) name(name string) string {
	if o.Rename == nil {
		return name
	}
	return o.Rename(name)
}

// match finds the tensors of the file that the State has a part of.
func match(x *index, state *State, o LoadOptions) ([]*fileTensor, error) {
	if state.err != nil {
		return nil, state.err
	}
	files, err := arrange(state.tensors, o.Map, o.name)
	if err != nil {
		return nil, err
	}
	entries := x.byName()
	rest := map[string]bool{} // names in the checkpoint that the State does not take
	for name := range entries {
		rest[name] = true
	}
	for name := range x.Values {
		rest[name] = true
	}
	for name := range x.Unread {
		rest[name] = true
	}
	var missing, differ []string
	var wanted []*fileTensor
	for _, f := range files {
		delete(rest, f.name)
		if f.entry = entries[f.name]; f.entry == nil {
			if dt, ok := x.Unread[f.name]; ok {
				return nil, fmt.Errorf("%q is of type %s there, and F64, F32, F16, BF16, I64, I32, I16, I8, U8 and BOOL can be read; convert it in "+
					"the file, or leave it out of the State", f.name, dt)
			}
			missing = append(missing, f.name)
			continue
		}
		for i := range f.members {
			if shape, _ := f.members[i].locate(); !slices.Equal(f.entry.Shape, shape) {
				differ = append(differ, fmt.Sprintf("%q is %v there and %v here", f.name, f.entry.Shape, shape))
			}
		}
		wanted = append(wanted, &f)
	}
	for _, v := range state.values {
		name := o.name(v.name)
		delete(rest, name)
		if _, ok := x.Values[name]; !ok {
			missing = append(missing, name)
		}
	}
	for _, pattern := range o.Ignore {
		p := patternOf(pattern)
		maps.DeleteFunc(rest, func(name string, _ bool) bool { return p.MatchString(name) })
	}
	unexpected := slices.Sorted(maps.Keys(rest))
	var problems []string
	if len(missing) > 0 && !o.AllowMissing {
		problems = append(problems, fmt.Sprintf("%s missing there; Load with AllowMissing leaves such as they are", some(missing)))
	}
	if len(unexpected) > 0 && !o.AllowUnexpected {
		problems = append(problems, some(unexpected)+" unexpected, as the State has no such name; Load with AllowUnexpected ignores them")
	}
	if len(differ) > 0 {
		problems = append(problems, "shapes differ: "+strings.Join(differ[:min(len(differ), 4)], ", "))
	}
	if len(problems) > 0 {
		return nil, errors.New(strings.Join(problems, "; "))
	}
	return wanted, nil
}

// some prints the first names of a list with a verb.
func some(names []string) string {
	const most = 4
	quoted := make([]string, 0, most)
	for _, n := range names[:min(len(names), most)] {
		quoted = append(quoted, fmt.Sprintf("%q", n))
	}
	text := strings.Join(quoted, ", ")
	switch {
	case len(names) > most:
		return fmt.Sprintf("%s and %d more are", text, len(names)-most)
	case len(names) > 1:
		return text + " are"
	}
	return text + " is"
}

// sameState returns an error on every rank if their States differ. Each has
// matched its own with the file before.
func sameState(ctx context.Context, c *comm.Comm, state *State) error {
	d := int64(state.digest() >> 1)
	ends := []int64{d, -d}
	if err := comm.AllReduce(ctx, c, ends, comm.Min); err != nil {
		return err
	}
	if ends[0] != -ends[1] {
		return errors.New("the ranks have other names, types or layouts in their States; add the same on every rank")
	}
	return nil
}

// fill reads the tensors that wanted lists. The ranks of each host do it together, one
// tensor after the other.
func fill(ctx context.Context, c *comm.Comm, r *reader, wanted []*fileTensor, host string) error {
	defer r.close()
	if host == "" {
		host = thisHost()
	}
	h, err := hostOf(ctx, c, host)
	if err != nil {
		return err
	}
	boxes, err := boxesOf(ctx, h, wanted)
	if err != nil {
		return err
	}
	l := &loader{reader: r, host: h, load: make([]int, h.Size())}
	for i, f := range wanted {
		if f.stored() {
			if err := l.fillStored(ctx, f); err != nil {
				return err
			}
			continue
		}
		var mine []destination
		var targets []target
		for k := range f.members {
			list, err := destinationsOf(ctx, &f.members[k], f.entry)
			l.keep(err)
			mine = append(mine, list...)
		}
		for _, d := range mine {
			targets = append(targets, d.target)
		}
		if err := l.fill(ctx, f.entry, boxes[i], targets); err != nil {
			return err
		}
		if l.err == nil {
			l.keep(finish(ctx, f, mine))
		}
	}
	return agree(ctx, c, l.err)
}

// A destination is a part of a tensor that this rank holds, and the memory that its
// elements are read into: its own where they can be read there as they are.
type destination struct {
	target
	part   localPart
	member *member
}

// destinationsOf returns the parts of m that this rank holds.
func destinationsOf(ctx context.Context, m *member, e *tensorEntry) (list []destination, err error) {
	if len(m.namedTensor.boxes()) == 0 {
		return nil, nil
	}
	err = dtensor.Try(ctx, m.mesh(), func() {
		for _, p := range m.parts() {
			b, own := hostBytes(p.data)
			if !own || m.transposed() || e.dtype() != p.data.DType() {
				b = make([]byte, p.box.numel()*e.dtype().Size())
			}
			list = append(list, destination{target{m.placed(p.box), b}, p, m})
		}
	})
	return list, named(e, err)
}

// finish brings what was read to the parts.
func finish(ctx context.Context, f *fileTensor, list []destination) error {
	for _, d := range list {
		err := dtensor.Try(ctx, d.member.mesh(), func() {
			b, dt, x := d.data, f.entry.dtype(), d.part.data
			if dt == tensor.Bool {
				for k, v := range b {
					b[k] = min(v, 1) // a bool of Go has no other values
				}
			}
			if own, ok := hostBytes(x); ok && &own[0] == &b[0] {
				return
			}
			if !d.member.transposed() {
				fillFrom(x, b, dt)
				return
			}
			there := tensor.New(x.Device(), x.DType(), d.box.size...)
			fillFrom(there, b, dt)
			zero := make([]int, len(d.box.size))
			tensor.CopyBox(x, zero, tensor.Transpose(there, -2, -1), zero, x.Shape())
		})
		if err != nil {
			return named(f.entry, err)
		}
	}
	runtime.KeepAlive(list)
	return nil
}

func named(e *tensorEntry, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("tensor %q: %w", e.Name, err)
}
