package checkpoint

import (
	"encoding/json"
	"fmt"
	"hash/crc64"
	"iter"
	"reflect"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/dtensor"
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

// AddTensor adds one tensor. It must not be Partial. A nil tensor or a name that
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

// AddValue adds a small value, such as a counter or a seed: at points to
// something that encoding/json encodes. It is kept in the index, as it is on the
// first rank, and loaded on every rank.
//
//	state.AddValue("step", &step)
func (s *State) AddValue(name string, at any) {
	if v := reflect.ValueOf(at); v.Kind() != reflect.Pointer || v.IsNil() {
		s.misuse("value %q is a %T; give a pointer to it", name, at)
		return
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

func (s *State) misuse(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// encodeValues returns the values as they are now.
func (s *State) encodeValues() (map[string]json.RawMessage, error) {
	values := map[string]json.RawMessage{}
	for _, v := range s.values {
		text, err := json.Marshal(v.at)
		if err != nil {
			return nil, fmt.Errorf("value %q: %w", v.name, err)
		}
		values[v.name] = text
	}
	return values, nil
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
