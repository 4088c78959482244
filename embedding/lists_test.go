package embedding_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// A session is a batch whose samples repeat lists: lists[f][k] are the ids of a list of a
// feature and inverse[f][s] is the list of sample s.
type session struct {
	lists   [][][]int64
	inverse [][]int
	samples int
}

const sessionRows = 9

func someSession(rng *rand.Rand, features int) *session {
	s := &session{samples: rng.IntN(9)}
	for range features {
		var lists [][]int64
		for range 1 + rng.IntN(4) {
			ids := make([]int64, rng.IntN(4))
			for i := range ids {
				ids[i] = int64(rng.IntN(sessionRows))
			}
			lists = append(lists, ids)
		}
		inverse := make([]int, s.samples)
		for i := range inverse {
			inverse[i] = rng.IntN(len(lists))
		}
		s.lists, s.inverse = append(s.lists, lists), append(s.inverse, inverse)
	}
	return s
}

func sessionWeight(f, k, i int) float32 { return float32(1+(f+2*k+3*i)%5) / 4 }

// place puts the session on a mesh: each rank has once the lists of its own samples, of the
// features in shared, and one for each sample of the others. Feature 1 has weights if
// weighted.
func (s *session) place(m *dtensor.Mesh, weighted bool, shared func(f int) bool, places ...layout.Placement) (*embedding.Jagged, error) {
	whole := dtensor.Distribute(m, tensor.Arange(m.Device(), tensor.Int64, 0, s.samples), places...)
	mine := tensor.ToSlice[int64](whole.Local())
	var batch []embedding.Lists
	for f := range s.lists {
		l := embedding.Lists{Feature: fmt.Sprint("f", f)}
		if shared(f) {
			l.Inverse = []int{}
		}
		var seen []int
		for _, sample := range mine {
			k := s.inverse[f][sample]
			at := slices.Index(seen, k)
			if at < 0 || !shared(f) {
				at, seen = len(seen), append(seen, k)
				l.Lengths, l.IDs = append(l.Lengths, len(s.lists[f][k])), append(l.IDs, s.lists[f][k]...)
				for i := range s.lists[f][k] {
					l.Weights = append(l.Weights, sessionWeight(f, k, i))
				}
			}
			if shared(f) {
				l.Inverse = append(l.Inverse, at)
			}
		}
		if f != 1 || !weighted {
			l.Weights = nil
		} else if l.Weights == nil {
			l.Weights = []float32{}
		}
		batch = append(batch, l)
	}
	return embedding.JaggedOf(m, s.samples, batch, places...)
}

// bags returns the bags of a collection of a batch, what they have of a sum, and the
// gradients of params for it.
func bagsOf(ctx context.Context, c *embedding.Collection, j *embedding.Jagged, params []*dtensor.Tensor) (list [][]float64, err error) {
	var y *dtensor.Tensor
	_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		y = c.Bags(j).Values()
		dtensor.Keep(y)
		return y.Mul(y.Sin()).Sum(nil, false)
	}, params...)
	if err != nil {
		return nil, err
	}
	list = append(list, whole(y))
	for _, g := range grads {
		dense := g.Dense()
		if rows, ok := g.Rows(); ok {
			dense = rows.Dense()
		}
		list = append(list, whole(dense))
	}
	return list, nil
}

func sessionTables(m *dtensor.Mesh, rng *rand.Rand, mesh []int, modes ...embedding.Mode) *embedding.Collection {
	var tables []embedding.CollectionTable
	for f, mode := range modes {
		tables = append(tables, embedding.CollectionTable{Config: embedding.Config{Name: fmt.Sprint("t", f), Rows: sessionRows, Dim: 2 + f,
			Layout: someLayout(rng, mesh, sessionRows), Key: dtensor.Key{Seed: uint64(f)}, Std: 1},
			Features: []string{fmt.Sprint("f", f)}, Mode: mode})
	}
	c := embedding.NewCollection(m, tables...)
	dtensor.Keep(c.Params()...)
	return c
}

// roundings returns by table how far two gradients may differ of what bagsOf computes, if they are the same sums in two orders.
// An element is a sum of n terms g·c: c is the weight of an id or one over its list's length, and g = sin y + y·cos y, which has the
// same bits in both. Each term is rounded once as a product, once for c, and in n-1 additions at most, of terms or of the g that have
// one c. So each sum is within (n+1)·u/(1-(n+1)·u) of the exact one, relative to the sum of the absolute terms (N. Higham, Accuracy
// and Stability of Numerical Algorithms, 4.2). n+2 instead of n+1 covers the denominator and the roundings of g in that sum.
func (s *session) roundings(c *embedding.Collection, modes []embedding.Mode, weighted bool, bags []float64) (most [][]float64) {
	const u = 0x1p-24
	dims, first := 0, 0
	for _, t := range c.Tables() {
		dims += t.Weight().Dim(1)
	}
	for f, t := range c.Tables() {
		dim, table := t.Weight().Dim(1), whole(t.Weight())
		terms, sums := make([]float64, sessionRows*dim), make([]float64, sessionRows*dim)
		for sample, k := range s.inverse[f] {
			ids := s.lists[f][k]
			for d := range dim {
				y := bags[sample*dims+first+d]
				its := ids
				if modes[f] == embedding.Max && len(ids) > 0 {
					its = []int64{slices.MaxFunc(ids, func(a, b int64) int { return cmp.Compare(table[int(a)*dim+d], table[int(b)*dim+d]) })}
				}
				for i, id := range its {
					c := 1.0
					switch {
					case modes[f] == embedding.Mean:
						c /= float64(len(ids))
					case f == 1 && weighted:
						c = float64(sessionWeight(f, k, i))
					}
					terms[int(id)*dim+d]++
					sums[int(id)*dim+d] += c * (math.Abs(math.Sin(y)) + math.Abs(y*math.Cos(y)))
				}
			}
		}
		for e, n := range terms {
			terms[e] = 2 * (n + 2) * u * sums[e]
		}
		most, first = append(most, terms), first+dim
	}
	return most
}

// Samples that share lists have the bags of samples that do not, to the bit, and the gradients of the tables up to the order of
// their sums, on any mesh; some features have weights and some share lists.
func TestSharedLists(t *testing.T) {
	meshtest.Random(t, func(rng *rand.Rand, i int) {
		mesh, seed := meshtest.SomeMesh(rng), rng.Uint64()
		s, weighted, bits := someSession(rng, 3), rng.IntN(2) == 0, rng.IntN(4) == 0
		some, places := rng.IntN(3), meshtest.SomePlaces(rng, mesh, s.samples)
		third := embedding.Mode(rng.IntN(3))
		meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			m.SetSameBits(bits)
			c := sessionTables(m, rand.New(rand.NewPCG(seed, 1)), mesh, embedding.Mean, embedding.Sum, third)
			var want, most [][]float64
			for _, shared := range []func(f int) bool{func(int) bool { return false }, func(int) bool { return true },
				func(f int) bool { return f == some }} {
				j, err := s.place(m, weighted, shared, places...)
				if err != nil {
					return err
				}
				got, err := bagsOf(ctx, c, j, c.Params())
				if err != nil {
					return err
				}
				if want == nil {
					want, most = got, s.roundings(c, []embedding.Mode{embedding.Mean, embedding.Sum, third}, weighted, got[0])
				}
				for k := range want {
					for e, x := range got[k] {
						if diff := math.Abs(x - want[k][e]); diff > 0 && (bits || k == 0 || diff > most[k-1][e]) {
							return fmt.Errorf("case %d: mesh %v, samples %v: element %d of list %d is %v, want %v", i, mesh, places, e, k, x,
								want[k][e])
						}
					}
				}
			}
			return nil
		})
	})
}

// PositionWeights are the weights of the ids by position, and their gradient is that of a
// loop, with samples that share lists too.
func TestPositionWeights(t *testing.T) {
	meshtest.Random(t, func(rng *rand.Rand, i int) {
		mesh, seed := meshtest.SomeMesh(rng), rng.Uint64()
		s, bits := someSession(rng, 2), rng.IntN(4) == 0
		places := meshtest.SomePlaces(rng, mesh, s.samples)
		meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			m.SetSameBits(bits)
			c := sessionTables(m, rand.New(rand.NewPCG(seed, 1)), mesh, embedding.Mean, embedding.Sum)
			p, err := embedding.NewPositionWeights(m, []string{"f1"}, []int{4})
			if err != nil {
				return err
			}
			factors := []float64{0.5, -1, 2, 3}
			for at, x := range factors {
				tensor.Fill(tensor.Narrow(p.Params()[0].Local(), 0, at, 1), x)
			}
			table := whole(c.Tables()[1].Weight())
			const dim = 3
			wantGrad, wantBags := make([]float64, 4), make([]float64, s.samples*dim)
			for sample := range s.samples {
				ids, bag := s.lists[1][s.inverse[1][sample]], wantBags[sample*dim:(sample+1)*dim]
				for at, id := range ids {
					for d := range bag {
						bag[d] += factors[at] * table[int(id)*dim+d]
					}
				}
				for at, id := range ids {
					for d, y := range bag {
						wantGrad[at] += (math.Sin(y) + y*math.Cos(y)) * table[int(id)*dim+d]
					}
				}
			}
			for _, shared := range []bool{false, true} {
				j, err := s.place(m, false, func(int) bool { return shared }, places...)
				if err != nil {
					return err
				}
				if j, err = p.Apply(j); err != nil {
					return err
				}
				got, err := bagsOf(ctx, c, j, append(slices.Clone(c.Params()), p.Params()...))
				if err != nil {
					return err
				}
				for sample := range s.samples {
					for d := range dim {
						if x, want := got[0][sample*(2+dim)+2+d], wantBags[sample*dim+d]; math.Abs(x-want) > 1e-4 {
							return fmt.Errorf("case %d: mesh %v, sample %d: %v, want %v", i, mesh, sample, x, want)
						}
					}
				}
				for at, want := range wantGrad {
					if x := got[3][at]; math.Abs(x-want) > 1e-3*(1+math.Abs(want)) {
						return fmt.Errorf("case %d: mesh %v, %v: the gradient of position %d is %v, want %v", i, mesh, places, at, x, want)
					}
				}
			}
			return nil
		})
	})
}

// What does not fit is an error that names the feature, and an id that a table has not is
// named with the first sample that has its list.
func TestListsErrors(t *testing.T) {
	meshtest.On(t, []int{1}, func(ctx context.Context, m *dtensor.Mesh) error {
		for _, c := range []struct {
			lists embedding.Lists
			says  string
		}{
			{embedding.Lists{Lengths: []int{1}, IDs: []int64{1}}, `1 lengths of feature "f" for the 2 samples of this rank; give 2, or Inverse`},
			{embedding.Lists{Lengths: []int{1}, IDs: []int64{1}, Inverse: []int{0}},
				`Inverse of feature "f" names the lists of 1 samples; this rank has 2`},
			{embedding.Lists{Lengths: []int{1}, IDs: []int64{1}, Inverse: []int{0, 1}}, `Inverse[1] of feature "f" is 1; its lists are from 0 to 0`},
			{embedding.Lists{Lengths: []int{1, 0}, IDs: []int64{1}, Inverse: []int{0, 0}}, `list 1 of feature "f" is that of no sample`},
			{embedding.Lists{Lengths: []int{2, -1}, IDs: []int64{1}}, `the length of list 1 of feature "f" is -1`},
			{embedding.Lists{Lengths: []int{1, 1}, IDs: []int64{1}}, `1 ids of feature "f", but the lengths add up to 2`},
			{embedding.Lists{Lengths: []int{1, 0}, IDs: []int64{1}, Weights: []float32{1, 2}}, `2 weights for 1 ids of feature "f"`},
		} {
			c.lists.Feature = "f"
			if _, err := embedding.JaggedOf(m, 2, []embedding.Lists{c.lists}); err == nil || !strings.Contains(err.Error(), c.says) {
				return fmt.Errorf("got %v, want %q", err, c.says)
			}
		}
		c := embedding.NewCollection(m, embedding.CollectionTable{Config: embedding.Config{Name: "t", Rows: 3, Dim: 1}, Features: []string{"f"},
			Mode: embedding.Sum}, embedding.CollectionTable{Config: embedding.Config{Name: "u", Rows: 3, Dim: 1}, Features: []string{"g"}})
		lists := []embedding.Lists{{Feature: "f", Lengths: []int{1, 2}, IDs: []int64{1, 2, 3}, Inverse: []int{0, 0, 1, 1}},
			{Feature: "g", Lengths: []int{1, 1, 0, 0}, IDs: []int64{1, 1}}}
		j, err := embedding.JaggedOf(m, 4, lists)
		if err != nil {
			return err
		}
		err = dtensor.Try(ctx, m, func() { c.Bags(j) })
		if err == nil || !strings.Contains(err.Error(), "id 3 at [2 1] is out of range") {
			return fmt.Errorf("a bad id: %v", err)
		}
		for feature, says := range map[string]string{"f": "list 1 of feature \"f\" has 2 ids, and there are factors for 1", "x": `no feature "x"`,
			"g": ""} {
			p, err := embedding.NewPositionWeights(m, []string{feature}, []int{1})
			if err != nil {
				return err
			}
			its, err := p.Apply(j)
			if says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
				return fmt.Errorf("Apply: %v, want %s", err, says)
			}
			if says == "" {
				err = dtensor.Try(ctx, m, func() { c.Bags(its) })
				if err == nil || !strings.Contains(err.Error(), `table "u" has Mode mean; they are for Sum`) {
					return fmt.Errorf("factors of means: %v", err)
				}
			}
		}
		return nil
	})
}
