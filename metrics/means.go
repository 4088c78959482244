package metrics

import (
	"context"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
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
// empties m. A mean of weight 0 is NaN.
func (m *Means) Reduce(ctx context.Context, world *comm.Comm) ([]Value, error) {
	if err := comm.AllReduce(ctx, world, m.sums, comm.Sum); err != nil {
		return nil, err
	}
	values := make([]Value, len(m.names))
	for i, name := range m.names {
		values[i] = Value{name, m.sums[2*i] / m.sums[2*i+1]}
	}
	*m = Means{}
	return values, nil
}
