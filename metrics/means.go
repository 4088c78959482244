package metrics

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"math/bits"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// A Value is a number with a name, such as a loss.
type Value struct {
	Name  string
	Value float64
}

// Means are weighted means over all ranks and over many steps. Each rank adds its values;
// Reduce sums them over the ranks in one AllReduce. The zero Means is empty.
//
//	var means metrics.Means
//	means.Add("loss", sum/n, n)
//	means.Add("accuracy", correct/n, n)
//	values, err := means.Reduce(ctx, world) // the same on every rank
type Means struct {
	names []string
	sums  []float64 // of value·weight, then of weight, for each name
}

// Add adds a value that counts weight times. Every rank must add the same names, in the
// same order of first use; a rank without a value for a name adds it with weight 0.
func (m *Means) Add(name string, value, weight float64) {
	i := slices.Index(m.names, name)
	if i < 0 {
		i = len(m.names)
		m.names, m.sums = append(m.names, name), append(m.sums, 0, 0)
	}
	if weight != 0 {
		m.sums[2*i] += value * weight
		m.sums[2*i+1] += weight
	}
}

// Reduce returns the means over all ranks, in the order in which names were first added, and
// empties m. A mean of weight 0 is NaN. It is an error on all ranks if they have added different names.
func (m *Means) Reduce(ctx context.Context, world *comm.Comm) (_ []Value, err error) {
	defer fault.Locate(&err)
	// The sums of a hash of the names and of its square: that of the squares is the least if all are the same.
	names, hash := fmt.Sprintf("%q", m.names), fnv.New32a()
	_, _ = io.WriteString(hash, names) // it never fails
	h := uint64(hash.Sum32() % hashes)
	sums := slices.Concat(m.sums, []float64{float64(h), float64(h * h)})
	call := comm.Call{Kind: comm.AllReduceKind, Op: comm.Sum, Dst: comm.Of(sums), Src: comm.Of(sums), Cause: "Means of " + names}
	if err := world.Do(ctx, call); err != nil { // of other numbers of names, too, which the causes show
		return nil, err
	}
	n := len(m.sums)
	one, squares := uint64(sums[n]), uint64(sums[n+1])
	hi, lo := bits.Mul64(one, one)
	if least, low := bits.Mul64(squares, uint64(world.Size())); hi != least || lo != low {
		return nil, fmt.Errorf("metrics: Means.Reduce: rank %d of %d has added %q, and another rank other names, or in another order; "+
			"add a name for which a rank has no value with weight 0", world.Rank(), world.Size(), m.names)
	}
	values := make([]Value, len(m.names))
	for i, name := range m.names {
		values[i] = Value{name, sums[2*i] / sums[2*i+1]}
	}
	*m = Means{}
	return values, nil
}

// hashes is how many hashes of names there are: the sum of their squares over 100,000 ranks is exact.
const hashes = 1 << 18
