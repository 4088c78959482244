package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
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
	// Rename gives the name in the file of a name in the State, for models that
	// others have named; nil: they are the same.
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
// in place.
//
// Load is collective over world and its error, which names the file and the
// tensor, is the same on every rank: names that are missing or unexpected, a
// shape that differs, a file that is damaged or cut off. After an error in the
// reading itself tensors may have been changed in part; after one that the index
// alone shows nothing has.
//
// The files of a checkpoint are plain files in its folder: Load follows no
// symbolic link there. In a folder of Hugging Face's, whose cache is made of
// links, it does.
func Load(ctx context.Context, world *comm.Comm, path string, state *State, o LoadOptions) error {
	if _, err := load(ctx, world, osFS{}, path, state, o); err != nil {
		return fmt.Errorf("checkpoint: Load: %w", err)
	}
	return nil
}

func load(ctx context.Context, c *comm.Comm, fs fileSystem, path string, given *State, o LoadOptions) (*index, error) {
	sorted := given.sorted() // the same order on every rank
	state := &sorted
	dir, plain, x, err := shareIndex(ctx, c, fs, path)
	if err != nil {
		return nil, err
	}
	wanted, err := match(x, state, o)
	if err = agree(ctx, c, err); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := sameState(ctx, c, state); err != nil {
		return nil, err
	}
	if err := fill(ctx, c, newReader(fs, dir, plain, x), state.tensors, wanted, o.host); err != nil {
		return nil, err
	}
	for _, v := range state.values {
		if text, ok := x.Values[o.name(v.name)]; ok {
			if err := json.Unmarshal(text, v.at); err != nil {
				return nil, fmt.Errorf("%s: value %q: %w", path, v.name, err)
			}
		}
	}
	return x, nil
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
	if folder, err = broadcast(ctx, c, folder, 0); err != nil {
		return "", false, nil, err
	}
	if text, err = broadcast(ctx, c, text, 0); err != nil {
		return "", false, nil, err
	}
	if x, err = decodeIndex(text); err != nil {
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

// match finds the entry of each tensor in the State; nil for one that is missing
// and may be.
func match(x *index, state *State, o LoadOptions) ([]*tensorEntry, error) {
	if state.err != nil {
		return nil, state.err
	}
	entries := map[string]*tensorEntry{}
	rest := map[string]bool{} // what the State has not asked for
	for i := range x.Tensors {
		entries[x.Tensors[i].Name] = &x.Tensors[i]
		rest[x.Tensors[i].Name] = true
	}
	for name := range x.Values {
		rest[name] = true
	}
	var missing, differ []string
	wanted := make([]*tensorEntry, len(state.tensors))
	for i, t := range state.tensors {
		name := o.name(t.name)
		delete(rest, name)
		e := entries[name]
		switch {
		case e == nil:
			missing = append(missing, name)
		case !slices.Equal(e.Shape, t.shape()):
			differ = append(differ, fmt.Sprintf("%q is %v there and %v here", name, e.Shape, t.shape()))
		}
		wanted[i] = e
	}
	for _, v := range state.values {
		name := o.name(v.name)
		delete(rest, name)
		if _, ok := x.Values[name]; !ok {
			missing = append(missing, name)
		}
	}
	unexpected := slices.Sorted(maps.Keys(rest))
	var problems []string
	if len(missing) > 0 && !o.AllowMissing {
		problems = append(problems, fmt.Sprintf("%s missing there; AllowMissing leaves such as they are", some(missing)))
	}
	if len(unexpected) > 0 && !o.AllowUnexpected {
		problems = append(problems, fmt.Sprintf("%s unexpected, as the State has no such name; AllowUnexpected ignores them", some(unexpected)))
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

// fill reads the tensors for which wanted has an entry. The ranks of each host do
// it together, one tensor after the other.
func fill(ctx context.Context, c *comm.Comm, r *reader, tensors []namedTensor, wanted []*tensorEntry, host string) error {
	defer r.close()
	if host == "" {
		host = thisHost()
	}
	h, err := hostOf(ctx, c, host)
	if err != nil {
		return err
	}
	mine, dims := make([][]box, len(tensors)), make([]int, len(tensors))
	for i, t := range tensors {
		if dims[i] = len(t.shape()); wanted[i] != nil {
			mine[i] = t.boxes()
		}
	}
	boxes, err := tell(ctx, h, mine, dims)
	if err != nil {
		return err
	}
	l := &loader{reader: r, host: h, load: make([]int, h.Size())}
	for i, t := range tensors {
		e := wanted[i]
		if e == nil {
			continue
		}
		of := make([][]box, h.Size())
		for q := range of {
			of[q] = boxes[q][i]
		}
		parts, targets, err := targetsOf(ctx, t, e)
		l.keep(err)
		if err := l.fill(ctx, e, of, targets); err != nil {
			return err
		}
		if l.err == nil {
			l.keep(finish(ctx, t, e, parts, targets))
		}
	}
	return agree(ctx, c, l.err)
}

// targetsOf returns this rank's parts of t and the memory to read each into: its
// own where the elements can be read there as they are.
func targetsOf(ctx context.Context, t namedTensor, e *tensorEntry) (parts []localPart, targets []target, err error) {
	if len(t.boxes()) == 0 {
		return nil, nil, nil
	}
	err = dtensor.Try(ctx, t.mesh(), func() {
		parts = t.parts()
		for _, p := range parts {
			b, own := hostBytes(p.data)
			if !own || e.dtype() != p.data.DType() {
				b = make([]byte, p.box.numel()*e.dtype().Size())
			}
			targets = append(targets, target{p.box, b})
		}
	})
	return parts, targets, named(e, err)
}

// finish brings what was read into targets to the parts.
func finish(ctx context.Context, t namedTensor, e *tensorEntry, parts []localPart, targets []target) error {
	if len(parts) == 0 {
		return nil
	}
	return named(e, dtensor.Try(ctx, t.mesh(), func() {
		for i, p := range parts {
			b := targets[i].data
			if e.dtype() == tensor.Bool {
				for k, v := range b {
					b[k] = min(v, 1) // a bool of Go has no other values
				}
			}
			if own, ok := hostBytes(p.data); !ok || &own[0] != &b[0] {
				fillFrom(p.data, b, e.dtype())
			}
		}
		runtime.KeepAlive(parts)
	}))
}

func named(e *tensorEntry, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("tensor %q: %w", e.Name, err)
}
