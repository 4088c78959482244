package data

import (
	"fmt"
	"math/rand/v2"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// An Order assigns records to the batch of each step. An epoch has every record once, in an order of
// its own; its last batch may be smaller. The batch depends on the seed and the step alone: it is the
// same on every rank, with any number of ranks, and after a restart. One goroutine uses an Order.
type Order struct {
	n, batch int
	seed     uint64

	epoch int   // the number of the epoch whose order it has, plus 1; 0: none
	order []int // of its records
}

// NewOrder orders n records in batches of batch records over all ranks. Both must be above 0.
func NewOrder(n, batch int, seed uint64) (_ *Order, err error) {
	defer fault.Locate(&err)
	if n < 1 || batch < 1 {
		return nil, fmt.Errorf("data: NewOrder: %d records in batches of %d; give at least one of each", n, batch)
	}
	return &Order{n: n, batch: batch, seed: seed}, nil
}

// Steps returns how many steps an epoch has.
func (o *Order) Steps() int { return ints.DivUp(o.n, o.batch) }

// Batch returns the records of a step, counted from 0, over all ranks. The caller must not modify it.
// It throws for a negative step.
func (o *Order) Batch(step int) []int {
	if step < 0 || o.n == 0 {
		dtensor.Throw(fmt.Errorf("data: Order.Batch: step %d of %d records; count steps from 0, and make the Order with NewOrder", step, o.n))
	}
	epoch, at := step/o.Steps(), step%o.Steps()*o.batch
	if o.epoch != epoch+1 {
		o.epoch, o.order = epoch+1, rand.New(rand.NewPCG(o.seed, uint64(epoch))).Perm(o.n)
	}
	return o.order[at:min(at+o.batch, o.n)]
}
