package checkpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc64"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/object"
	"github.com/gorun-spmd/gorun/tensor"
)

// A State names what a program has to remember: where Save finds it and where
// Load puts it. The zero State is empty. Every rank adds the same names, with
// tensors of the same layouts; a rank outside the mesh of a tensor adds its empty
// one.
//
// A State holds pointers, so one made before the training loop serves every save
// and load, as long as the program changes tensors in place, as optimizers do.
type State struct {
	tensors []namedTensor
	values  []namedValue
	growing []namedGrowing
	names   map[string]bool
	err     error // the first misuse
}

// A namedTensor is a Tensor or a LocalShards, the other being nil.
type namedTensor struct {
	name   string
	tensor *dtensor.Tensor
	shards *dtensor.LocalShards
}

type namedValue struct {
	name string
	at   any // a pointer
}

// AddTensors adds tensors, each under prefix and its own name:
//
//	state.AddTensors("model.", model.Params())
func (s *State) AddTensors(prefix string, tensors iter.Seq2[string, *dtensor.Tensor]) {
	for name, t := range tensors {
		s.AddTensor(prefix+name, t)
	}
}

// AddTensor adds one tensor. It must not be Partial. One whose rows layout.ShardCyclic
// deals out is copied in the order of its rows to be saved and loaded. A nil tensor or a name that
// is there already is a misuse, of which Save and Load return an error.
func (s *State) AddTensor(name string, t *dtensor.Tensor) {
	if t == nil {
		s.misuse("tensor %q is nil; add it after it was made", name)
		return
	}
	for _, p := range t.Placements() {
		if p.IsPartial() {
			s.misuse("tensor %q is %v, a reduction of what the ranks hold; redistribute it to Replicate or Shard", name, t)
			return
		}
	}
	s.checkName(name)
	s.tensors = append(s.tensors, namedTensor{name: name, tensor: t})
}

// Has reports whether AddTensor or AddTensors was given t.
func (s *State) Has(t *dtensor.Tensor) bool {
	return slices.ContainsFunc(s.tensors, func(it namedTensor) bool { return it.tensor == t && t != nil })
}

// Tensors returns what AddTensor and AddTensors were given, in that order.
func (s *State) Tensors() iter.Seq2[string, *dtensor.Tensor] {
	return func(yield func(string, *dtensor.Tensor) bool) {
		for _, t := range s.tensors {
			if t.tensor != nil && !yield(t.name, t.tensor) {
				return
			}
		}
	}
}

// AddShards adds a table of which each rank holds any number of shards. It is
// saved shard by shard and loaded into these, and does not depend on how it lay
// when it was saved: what was a Tensor can be loaded as LocalShards and the
// other way round. A rank outside the table's mesh adds its empty one.
func (s *State) AddShards(name string, l *dtensor.LocalShards) {
	if l == nil {
		s.misuse("table %q is nil; add it after it was made", name)
		return
	}
	s.checkName(name)
	s.tensors = append(s.tensors, namedTensor{name: name, shards: l})
}

// A Growing is a part of a state whose tensors have other sizes at each save, such as a
// table of package embedding that is Dynamic. What it throws is the error of Save or Load.
type Growing interface {
	// Mesh returns the mesh that the tensors lie on.
	Mesh() *dtensor.Mesh
	// Saved returns the tensors as they are now, and what gives back their memory when
	// they have been copied. All ranks call it together.
	Saved() (tensors iter.Seq2[string, *dtensor.Tensor], free func())
	// Loading returns tensors to load into, given the shapes that the file has, nil for
	// a name that is not there; done takes them over when they are filled. All ranks call
	// both together.
	Loading(shape func(name string) []int) (tensors iter.Seq2[string, *dtensor.Tensor], done func())
}

// AddGrowing adds the tensors of g as they are at each save, each under prefix and its
// own name. Loaded, g has what was saved, whatever it had before.
//
//	state.AddGrowing("users.", users) // a Dynamic of package embedding
func (s *State) AddGrowing(prefix string, g Growing) {
	s.checkName(prefix)
	s.growing = append(s.growing, namedGrowing{prefix, g})
}

type namedGrowing struct {
	prefix string
	Growing
}

// asSaved returns s with the tensors that its growing parts have now, and in the order of
// their rows those whose rows are dealt out in turn, and what frees all of these.
func (s *State) asSaved(ctx context.Context) (now State, free func()) {
	now = *s.Clone()
	now.growing = nil
	var frees []func()
	for _, g := range s.growing {
		now.keep(dtensor.Try(ctx, g.Mesh(), func() {
			tensors, free := g.Saved()
			frees = append(frees, free)
			now.AddTensors(g.prefix, tensors)
		}))
	}
	now.excerpts()
	for _, c := range now.inBlocks(ctx, true) {
		frees = append(frees, c.free)
	}
	return now, func() {
		for _, f := range frees {
			f()
		}
	}
}

// A blocked is a tensor whose rows are dealt out in turn, and a copy with blocks of them,
// which a file can have, until free is called.
type blocked struct {
	turns, blocks *dtensor.Tensor
	free          func()
}

// inBlocks puts copies with blocks of rows in place of the tensors of s whose rows are
// dealt out in turn, and returns them; of rows on a disk only to save them: see fillStored. It is collective over
// the meshes of these.
func (s *State) inBlocks(ctx context.Context, toSave bool) (copies []blocked) {
	slices.SortFunc(s.tensors, func(a, b namedTensor) int { return strings.Compare(a.name, b.name) }) // one order on all ranks
	for i := range s.tensors {
		t := s.tensors[i].tensor
		if t == nil || t.Layout().Cyclic() < 0 {
			continue
		}
		_, stored := t.Stored()
		if stored && !toSave {
			continue
		}
		s.keep(dtensor.Try(ctx, t.Mesh(), func() {
			if stored {
				c, free := t.InBlocks("State")
				copies = append(copies, blocked{t, c, free})
				s.tensors[i].tensor = c
				return
			}
			c := t.Redistribute(t.Layout().Blocks().Placements()...)
			c.Local().Persist()
			copies = append(copies, blocked{t, c, c.Local().Free})
			s.tensors[i].tensor = c
		}))
	}
	return copies
}

// asLoaded returns s with the tensors that its growing parts are loaded into, with blocks
// of rows where rows are dealt out in turn, and what takes them over then. shape returns
// that of a tensor of the file, nil for none.
func (s *State) asLoaded(ctx context.Context, shape func(name string) []int) (now State, done func() error) {
	now = *s.Clone()
	now.growing = nil
	dones := make([]func(), len(s.growing))
	for i, g := range s.growing {
		now.keep(dtensor.Try(ctx, g.Mesh(), func() {
			found := false
			tensors, done := g.Loading(func(name string) []int {
				its := shape(g.prefix + name)
				found = found || its != nil
				return its
			})
			if dones[i] = done; !found {
				dones[i] = func() {} // it stays as it is, if its names may be missing
			}
			for name, t := range tensors {
				t.Local().Persist()
				now.AddTensor(g.prefix+name, t)
			}
		}))
	}
	now.excerpts()
	copies := now.inBlocks(ctx, false)
	return now, func() error {
		for _, c := range copies {
			err := dtensor.Try(ctx, c.turns.Mesh(), func() {
				tensor.Copy(c.turns.Local(), c.blocks.Redistribute(c.turns.Placements()...).Local())
			})
			if err != nil {
				return err
			}
			c.free()
		}
		for i, g := range s.growing {
			if err := dtensor.Try(ctx, g.Mesh(), dones[i]); err != nil {
				return fmt.Errorf("%q: %w", g.prefix, err)
			}
		}
		return nil
	}
}

// keep notes the first error.
func (s *State) keep(err error) {
	if s.err == nil {
		s.err = err
	}
}

// AddValue adds a small value, such as a counter or a seed: at points to
// something that encoding/json encodes, or encoding/gob, as numbers that may be NaN or infinite
// and the generators of math/rand/v2 are. A field that both would leave out, as one whose name
// begins with no capital letter, is an error. The value is kept in the index, as it is on the
// first rank, and loaded on every rank; of a map that it points to only what was saved is left.
//
//	state.AddValue("step", &step)
func (s *State) AddValue(name string, at any) {
	if v := reflect.ValueOf(at); v.Kind() != reflect.Pointer || v.IsNil() {
		s.misuse("value %q is a %T; give a pointer to it", name, at)
		return
	}
	if t := reflect.TypeOf(at).Elem(); object.CheckGob(t) != nil {
		if err := object.CheckJSON(t); err != nil {
			s.misuse("value %q: %w", name, err)
			return
		}
	}
	s.checkName(name)
	s.values = append(s.values, namedValue{name, at})
}

func (s *State) checkName(name string) {
	if name == "" {
		s.misuse("a name is empty; every tensor and value needs one")
	}
	if s.names[name] {
		s.misuse("%q was added twice; give each tensor and value a name of its own", name)
	}
	if s.names == nil {
		s.names = map[string]bool{}
	}
	s.names[name] = true
}

func (s *State) misuse(format string, args ...any) { s.keep(fmt.Errorf(format, args...)) }

// encodeValues returns the values as they are now.
func (s *State) encodeValues() (map[string]json.RawMessage, error) {
	values := map[string]json.RawMessage{}
	for _, v := range s.values {
		text, err := encodeValue(v.at)
		if err != nil {
			return nil, fmt.Errorf("value %q: %w", v.name, err)
		}
		values[v.name] = text
	}
	return values, nil
}

// Clone returns a State to which tensors can be added without adding them to s.
func (s *State) Clone() *State {
	return &State{slices.Clone(s.tensors), slices.Clone(s.values), slices.Clone(s.growing), maps.Clone(s.names), s.err}
}

// sorted returns a copy in the order of names, so that ranks may add them in any.
func (s *State) sorted() State {
	c := State{tensors: slices.Clone(s.tensors), values: slices.Clone(s.values), err: s.err}
	slices.SortFunc(c.tensors, func(a, b namedTensor) int { return strings.Compare(a.name, b.name) })
	slices.SortFunc(c.values, func(a, b namedValue) int { return strings.Compare(a.name, b.name) })
	return c
}

// digest is a number that ranks with the same names and layouts share.
func (s *State) digest() uint64 {
	h := crc64.New(crc64.MakeTable(crc64.ECMA))
	for _, t := range s.tensors {
		fmt.Fprintf(h, "%q %v %v %s %v\n", t.name, t.dtype(), t.shape(), t.layout(), t.mesh().Ranks())
	}
	for _, v := range s.values {
		fmt.Fprintf(h, "%q\n", v.name)
	}
	return h.Sum64()
}
