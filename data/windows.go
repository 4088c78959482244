// Package data reads the data that a model is trained on. The data of a step depends on
// the step and the seed alone, never on the number of ranks, so a stopped run goes on at
// the same place with any -np.
//
//	sampler, err := data.NewSampler(tokens, 1024, seed) // tokens []int32, as package data/tokenizer makes them
//	...
//	for step := first; step < steps; step++ {
//		ids, targets := sampler.Batch(mesh, "data", step, 0, 32) // [32, 1024] S(0): each rank makes its own rows
//		...
//	}
//
//	Sampler                      windows of a text at random places
//	Windows                      all windows of a text, one after another
//	Order                        the examples of a data set, shuffled anew in each epoch
//	Tokens, Table, Lines, JSON   examples in a file, which is mapped and not read whole
//	Prefetch                     the next batches, while this one is computed with
//	Share                        what one rank has read or made, for all ranks
package data

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// Ignore is the target of a position without a loss.
const Ignore = -100

// An Index is an element type for token ids in a batch.
type Index interface{ ~int32 | ~int64 }

// A Sampler draws training windows. Row r of step s is a window that begins at
// a place drawn uniformly for (seed, s, r) alone.
type Sampler struct {
	tokens  []int32
	context int
	seed    uint64
}

// NewSampler draws windows of context inputs, each with its targets, from
// tokens, which it keeps. tokens must be longer than context.
func NewSampler(tokens []int32, context int, seed uint64) (_ *Sampler, err error) {
	defer fault.Locate(&err)
	if context < 1 || len(tokens) <= context {
		return nil, fmt.Errorf("data: NewSampler: windows of %d tokens from a text of %d; give more text or choose a context from 1 to %d",
			context, len(tokens), max(1, len(tokens)-1))
	}
	return &Sampler{tokens, context, seed}, nil
}

// FillBatch fills rows first, first+1, … of a step's global batch. It equals
//
//	for b := range B {
//		at := place drawn for (seed, step, first+b)
//		for t := range T {
//			inputs[b*T+t], targets[b*T+t] = tokens[at+t], tokens[at+t+1]
//		}
//	}
//
//	inputs [B, T]   targets [B, T]
//
// with T the sampler's context and B = len(inputs)/T. inputs and targets must
// have the same length, a multiple of T.
func FillBatch[I Index](s *Sampler, step, first int, inputs, targets []I) {
	rows := rowsOf(inputs, targets, s.context)
	for b := range rows {
		at := s.start(step, first+b)
		row := b * s.context
		fillRow(inputs[row:row+s.context], targets[row:row+s.context], s.tokens[at:])
	}
}

// start returns where row r of a step begins: uniform, and independent for
// every (seed, step, row).
func (s *Sampler) start(step, row int) int {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[0:], s.seed)
	binary.LittleEndian.PutUint64(key[8:], uint64(step))
	binary.LittleEndian.PutUint64(key[16:], uint64(row))
	copy(key[24:], "batches.")
	place, _ := bits.Mul64(rand.NewChaCha8(key).Uint64(), uint64(len(s.tokens)-s.context))
	return int(place)
}

// Windows cover a text once, for evaluation: window i has the targets
// i·context+1 … (i+1)·context, so every token but the first is a target exactly
// once, predicted from those before it in its window.
type Windows struct {
	tokens  []int32
	context int
}

// NewWindows covers tokens, which it keeps, with windows of context inputs.
// context must be positive, else it throws.
func NewWindows(tokens []int32, context int) *Windows {
	if context < 1 {
		dtensor.Throw(fmt.Errorf("data: NewWindows: windows of %d tokens; give at least 1", context))
	}
	return &Windows{tokens, context}
}

// Targets returns how many targets all windows have together.
func (w *Windows) Targets() int { return max(0, len(w.tokens)-1) }

// Len returns the number of windows.
func (w *Windows) Len() int { return ints.DivUp(w.Targets(), w.context) }

// FillWindows fills the rows of a batch with windows first, first+1, … The last
// window may be shorter than its row, and a batch may reach past the last
// window: there inputs are 0 and targets Ignore. The lengths are as for
// FillBatch.
func FillWindows[I Index](w *Windows, first int, inputs, targets []I) {
	rows := rowsOf(inputs, targets, w.context)
	if first < 0 {
		dtensor.Throw(fmt.Errorf("data: FillWindows: window %d; count windows from 0", first))
	}
	for b := range rows {
		row := b * w.context
		at := min((first+b)*w.context, len(w.tokens))
		fillRow(inputs[row:row+w.context], targets[row:row+w.context], w.tokens[at:])
	}
}

// rowsOf returns B for inputs and targets of B·context elements.
func rowsOf[I Index](inputs, targets []I, context int) int {
	if context < 1 || len(inputs) != len(targets) || len(inputs)%context != 0 {
		dtensor.Throw(fmt.Errorf("data: %d inputs and %d targets; want equal multiples of the context, %d",
			len(inputs), len(targets), context))
	}
	return len(inputs) / context
}

// fillRow fills one row from the beginning of tokens, and pads it where they end.
func fillRow[I Index](inputs, targets []I, tokens []int32) {
	for t := range inputs {
		if t+1 < len(tokens) {
			inputs[t], targets[t] = I(tokens[t]), I(tokens[t+1])
		} else {
			inputs[t], targets[t] = 0, Ignore
		}
	}
}
