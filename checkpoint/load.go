package checkpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"unsafe"

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
}

// Load fills state from path, which is one of
//
//	the folder of one checkpoint               root/step-000123
//	a safetensors file                         model.safetensors
//	a folder with model.safetensors            as Hugging Face keeps models,
//	or model.safetensors.index.json            in one file or in several
//
// How many ranks wrote it and how its tensors lay does not matter: each rank
// reads those byte ranges that its shards need, each once, and converts them if
// the element type differs. Tensors are written in place.
//
// Load is collective over world and its error, which names the file and the
// tensor, is the same on every rank: names that are missing or unexpected, a
// shape that differs, a file that is damaged or cut off. After an error in the
// reading itself tensors may have been changed in part; after one that the index
// alone shows nothing has.
func Load(ctx context.Context, world *comm.Comm, path string, state *State, o LoadOptions) error {
	if _, err := load(ctx, world, osFS{}, path, state, o); err != nil {
		return fmt.Errorf("checkpoint: Load: %w", err)
	}
	return nil
}

func load(ctx context.Context, c *comm.Comm, fs fileSystem, path string, state *State, o LoadOptions) (*index, error) {
	dir, x, err := shareIndex(ctx, c, fs, path)
	if err != nil {
		return nil, err
	}
	wanted, err := match(x, state, o)
	if err = agree(ctx, c, err); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r := newReader(fs, dir, x)
	defer r.close()
	for i, t := range state.tensors {
		if e := wanted[i]; e != nil && err == nil {
			err = r.fill(ctx, t.Tensor, e)
		}
	}
	if err = agree(ctx, c, err); err != nil {
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
// files.
func shareIndex(ctx context.Context, c *comm.Comm, fs fileSystem, path string) (dir string, x *index, err error) {
	var text, folder []byte
	if c.Rank() == 0 {
		dir, text, err = findIndex(fs, path)
		folder = []byte(dir)
	}
	if err = agree(ctx, c, err); err != nil {
		return "", nil, err
	}
	if folder, err = broadcast(ctx, c, folder, 0); err != nil {
		return "", nil, err
	}
	if text, err = broadcast(ctx, c, text, 0); err != nil {
		return "", nil, err
	}
	if x, err = decodeIndex(text); err != nil {
		return "", nil, fmt.Errorf("%s: %s: %w", path, indexName, err)
	}
	return string(folder), x, nil
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
		case !slices.Equal(e.Shape, t.Shape()):
			differ = append(differ, fmt.Sprintf("%q is %v there and %v here", name, e.Shape, t.Shape()))
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
	var unexpected []string
	for name := range rest {
		unexpected = append(unexpected, name)
	}
	slices.Sort(unexpected)
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
		return nil, fmt.Errorf("%s", strings.Join(problems, "; "))
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

// fill reads this rank's shard of t.
func (r *reader) fill(ctx context.Context, t *dtensor.Tensor, e *tensorEntry) error {
	want, ok := local(t)
	if !ok {
		return nil
	}
	var err error
	thrown := dtensor.Try(ctx, t.Mesh(), func() {
		x := t.Local()
		saved := x
		if e.dtype() != x.DType() {
			saved = tensor.New(x.Device(), e.dtype(), x.Shape()...)
		}
		b, shared := hostBytes(saved)
		if !shared {
			b = make([]byte, saved.Bytes())
		}
		if err = r.read(b, want, e); err != nil {
			return
		}
		if e.dtype() == tensor.Bool {
			for i, v := range b {
				b[i] = min(v, 1) // a bool of Go has no other values
			}
		}
		if !shared {
			x.Device().FromHost(saved.Ptr(), unsafe.Pointer(&b[0]), len(b))
		}
		if saved != x {
			tensor.Copy(x, tensor.Cast(saved, x.DType()))
		}
		runtime.KeepAlive(saved)
	})
	if thrown != nil {
		return fmt.Errorf("tensor %q: %w", e.Name, thrown)
	}
	return err
}

// hostBytes returns the memory of a tensor, which has elements; ok is false if
// the process cannot touch it.
func hostBytes(x *tensor.Tensor) (b []byte, ok bool) {
	if _, cpu := x.Device().(*tensor.CPU); !cpu {
		return nil, false
	}
	return unsafe.Slice((*byte)(x.Ptr()), x.Bytes()), true
}
