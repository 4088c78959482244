package data

import (
	"fmt"
	"math/rand/v2"
)

// An Order says which records make up the batch of each step: each epoch has all of them once, in an
// order of its own, and its last batch may be smaller. It is a function of the seed and the step
// alone: the same on every rank, with any number of ranks, and after a restart. It is for one goroutine.
type Order struct {
	n, batch int
	seed     uint64

	epoch int   // the one whose order it has, and 1
	order []int // of its records
}

// NewOrder orders n records in batches, over all ranks, of batch of them. Both must be above 0.
func NewOrder(n, batch int, seed uint64) (*Order, error) {
	if n < 1 || batch < 1 {
		return nil, fmt.Errorf("data: NewOrder: %d records in batches of %d; give at least one of each", n, batch)
	}
	return &Order{n: n, batch: batch, seed: seed}, nil
}

// Steps returns how many steps an epoch has.
func (o *Order) Steps() int { return (o.n + o.batch - 1) / o.batch }

// Batch returns the records of a step, counted from 0, over all ranks. The caller must not modify it.
func (o *Order) Batch(step int) []int {
	epoch, at := step/o.Steps(), step%o.Steps()*o.batch
	if o.epoch != epoch+1 {
		o.epoch, o.order = epoch+1, rand.New(rand.NewPCG(o.seed, uint64(epoch))).Perm(o.n)
	}
	return o.order[at:min(at+o.batch, o.n)]
}
