package loss_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/tensor"
)

// drawn is Sample as loops over whole logits [n, c]: draws for each position.
func drawn(m *dtensor.Mesh, logits []float64, n, c int, o loss.SampleOptions) []int64 {
	draws, t := max(o.Draws, 1), o.Temperature
	if t == 0 {
		t = 1
	}
	k := c
	if o.TopK > 0 {
		k = o.TopK
	}
	u := tensor.New(m.Device(), tensor.Float32, draws, n, k)
	tensor.FillUniform(u, o.Key, 0, 1, nil, nil)
	noise := tensor.ToSlice[float32](u)
	var out []int64
	for i := range n {
		row := logits[i*c : (i+1)*c]
		left := make([]int, c) // the classes that can be drawn, largest first if some are left out
		for j := range left {
			left[j] = j
		}
		sorted := o.TopK > 0 || o.TopP > 0
		if sorted {
			sort.SliceStable(left, func(a, b int) bool { return row[left[a]] > row[left[b]] })
			left = left[:k]
		}
		if o.TopP > 0 {
			left = left[:inNucleus(row, left, t, o.TopP)]
		}
		for d := range draws {
			best, at := math.Inf(-1), slices.Min(left)
			if sorted {
				at = left[0]
			}
			for j, class := range left {
				if s := row[class]/t - math.Log(-math.Log(float64(noise[(d*n+i)*k+j]))); s > best {
					best, at = s, class
				}
			}
			out = append(out, int64(at))
		}
	}
	return out
}

// inNucleus returns how many of the sorted classes have the probability p together.
func inNucleus(row []float64, classes []int, temperature, p float64) int {
	total, sum := 0.0, 0.0
	for _, class := range classes {
		total += math.Exp(row[class] / temperature)
	}
	for i, class := range classes {
		if sum += math.Exp(row[class]/temperature) / total; sum >= p {
			return i + 1
		}
	}
	return len(classes)
}

func TestSample(t *testing.T) {
	s, r := layout.Shard, layout.Replicate()
	for _, c := range []struct {
		mesh   []int
		places []layout.Placement
	}{
		{[]int{1}, []layout.Placement{s(1)}},
		{[]int{2}, []layout.Placement{r}}, {[]int{2}, []layout.Placement{s(0)}}, {[]int{2}, []layout.Placement{s(1)}},
		{[]int{3}, []layout.Placement{s(1)}}, {[]int{4}, []layout.Placement{s(1)}},
		{[]int{4}, []layout.Placement{layout.ShardSizes(1, 0, 3, 0, 4)}},
		{[]int{2, 2}, []layout.Placement{s(0), s(1)}}, {[]int{2, 2}, []layout.Placement{s(1), s(1)}}, {[]int{2, 2}, []layout.Placement{s(1), r}},
	} {
		t.Run(fmt.Sprint(c.mesh, c.places), func(t *testing.T) {
			meshtest.On(t, c.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				const classes = 7
				for _, n := range []int{1, 5} {
					logits := make([]float64, n*classes)
					for i := range logits {
						logits[i] = float64(float32(3 * math.Sin(float64(i*i))))
					}
					logits[1], logits[2], logits[3] = math.Inf(-1), logits[0], logits[0]
					for step, o := range []loss.SampleOptions{{}, {Temperature: 0.3}, {Draws: 4}, {TopK: 1}, {TopK: 3, Draws: 2, Temperature: 2},
						{TopK: classes}, {TopP: 0.8, Draws: 9}, {TopP: 0.01}, {TopP: 0.7, TopK: 4, Temperature: 3, Draws: 9}} {
						o.Key = dtensor.Key{Seed: 9, Stream: uint64(step)}
						for _, dt := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16} {
							logits := logits
							if dt == tensor.BFloat16 {
								logits = halves(logits)
							}
							x := dtensor.Distribute(m, tensor.Cast(tensor.FromSlice(m.Device(), logits, n, classes), dt), c.places...)
							y := loss.Sample(x, o)
							got, want := tensor.ToSlice[int64](y.Full()), drawn(m, logits, n, classes, o)
							if !slices.Equal(got, want) {
								return fmt.Errorf("%d positions, %+v, %v: drew %v, want %v", n, o, dt, got, want)
							}
							for axis, p := range y.Placements() {
								if p.IsShard() != c.places[axis].Shards(0) {
									return fmt.Errorf("%+v: the result is %v", o, y)
								}
							}
							if err := y.CheckLocals(ctx); err != nil {
								return err
							}
						}
					}
				}
				return nil
			})
		})
	}
}

// TestSampleOneDimension draws from logits [C], and from logits that are all -Inf.
func TestSampleOneDimension(t *testing.T) {
	meshtest.On(t, []int{3}, func(ctx context.Context, m *dtensor.Mesh) error {
		logits := []float64{0, 1, 2, 3, 4}
		x := dtensor.Distribute(m, tensor.FromSlice(m.Device(), logits, 5), layout.Shard(0))
		for _, o := range []loss.SampleOptions{{Draws: 3}, {Draws: 3, TopP: 0.9}} {
			if got, want := tensor.ToSlice[int64](loss.Sample(x, o).Full()), drawn(m, logits, 1, 5, o); !slices.Equal(got, want) {
				return fmt.Errorf("%+v: drew %v, want %v", o, got, want)
			}
		}
		if y := loss.Sample(x, loss.SampleOptions{TopK: 1}); y.NDim() != 0 || y.Full().Item() != 4 {
			return fmt.Errorf("drew %v of %v", y.Full(), y)
		}
		none := dtensor.Full(m, tensor.Float32, math.Inf(-1), []int{2, 5}, layout.Shard(1))
		for _, o := range []loss.SampleOptions{{}, {TopP: 0.5}} {
			if got := tensor.ToSlice[int64](loss.Sample(none, o).Full()); !slices.Equal(got, []int64{0, 0}) {
				return fmt.Errorf("%+v: of nothing drew %v", o, got)
			}
		}
		all := tensor.ToSlice[int64](loss.Sample(x, loss.SampleOptions{Draws: 9}).Full())
		if got := tensor.ToSlice[int64](loss.Sample(x, loss.SampleOptions{Draws: 9, TopP: 1}).Full()); !slices.Equal(got, all) {
			return fmt.Errorf("with a TopP of 1 drew %v, want %v", got, all)
		}
		return nil
	})
}

// TestSampleFrequencies holds that classes are drawn as often as they should be.
func TestSampleFrequencies(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		const draws = 40000
		logits, temperature := []float64{0, 1, -1, 2, 0.5}, 1.5
		x := dtensor.Distribute(m, tensor.FromSlice(m.Device(), logits, 1, 5), layout.Shard(1))
		counts, total := make([]float64, 5), 0.0
		for _, class := range tensor.ToSlice[int64](loss.Sample(x,
			loss.SampleOptions{Draws: draws, Temperature: temperature, Key: dtensor.Key{Seed: 3}}).Full()) {
			counts[class]++
		}
		for _, l := range logits {
			total += math.Exp(l / temperature)
		}
		for class, l := range logits {
			p := math.Exp(l/temperature) / total
			if sigma := math.Sqrt(draws * p * (1 - p)); math.Abs(counts[class]-draws*p) > 5*sigma {
				return fmt.Errorf("class %d was drawn %v times, expected %v ± %v", class, counts[class], draws*p, sigma)
			}
		}
		return nil
	})
}

// TestSampleCost holds that the logits stay where they are.
func TestSampleCost(t *testing.T) {
	for _, c := range []struct {
		place layout.Placement
		o     loss.SampleOptions
		want  string
	}{
		{layout.Shard(1), loss.SampleOptions{}, "AllReduce 96"}, // 6 positions · 16 bytes
		{layout.Shard(1), loss.SampleOptions{Draws: 3}, "AllReduce 288"},
		{layout.Shard(0), loss.SampleOptions{}, ""},
		{layout.Replicate(), loss.SampleOptions{TopK: 2}, ""},
	} {
		meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
			x := dtensor.Zeros(m, tensor.Float32, []int{6, 1000}, c.place)
			record := m.Comm().Record()
			loss.Sample(x, c.o)
			var got []string
			for _, e := range record.Stop() {
				got = append(got, fmt.Sprintf("%v %d", e.Kind, e.Bytes))
			}
			if s := strings.Join(got, ", "); s != c.want {
				return fmt.Errorf("%v %+v communicates %q, want %q", c.place, c.o, s, c.want)
			}
			return nil
		})
	}
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		x := dtensor.Zeros(m, tensor.Float32, []int{6, 1000}, layout.Shard(1))
		record := m.Comm().Record()
		loss.Sample(x, loss.SampleOptions{TopK: 2})
		bytes := 0
		for _, e := range record.Stop() {
			bytes += e.Bytes
		}
		if bytes != 6*2*16 {
			return fmt.Errorf("the 2 largest of 6 positions took %d bytes", bytes)
		}
		return nil
	})
}

func TestSampleRefusals(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		x := dtensor.Zeros(m, tensor.Float32, []int{2, 3}, layout.Shard(1))
		for _, c := range []struct {
			x    *dtensor.Tensor
			o    loss.SampleOptions
			says string
		}{
			{dtensor.Zeros(m, tensor.Float32, []int{2, 3, 1}, layout.Replicate()), loss.SampleOptions{}, "3 dimensions"},
			{dtensor.Zeros(m, tensor.Float32, []int{2, 0}, layout.Replicate()), loss.SampleOptions{}, "no class"},
			{dtensor.Zeros(m, tensor.Int64, []int{2, 3}, layout.Replicate()), loss.SampleOptions{}, "not float32"},
			{x, loss.SampleOptions{Temperature: -1}, "Temperature is -1"},
			{x, loss.SampleOptions{Temperature: math.NaN()}, "Temperature is NaN"},
			{x, loss.SampleOptions{TopK: 4}, "TopK is 4"},
			{x, loss.SampleOptions{TopP: 1.5}, "TopP is 1.5"},
			{x, loss.SampleOptions{TopP: math.NaN()}, "TopP is NaN"},
			{x, loss.SampleOptions{Draws: -1}, "Draws is -1"},
		} {
			err := dtensor.Try(ctx, m, func() { loss.Sample(c.x, c.o) })
			if err == nil || !strings.Contains(err.Error(), c.says) {
				return fmt.Errorf("got %v, want %q", err, c.says)
			}
		}
		return nil
	})
}

// TestTopK compares with the sorted whole, for every k; two logits are equal, one
// is NaN.
func TestTopK(t *testing.T) {
	const n, classes = 3, 6
	logits := []float64{0, 5, -1, 5, 2, 0, math.Inf(-1), math.NaN(), math.Inf(1), 1, 1, 1, math.Inf(-1), math.Inf(-1), 0, math.Inf(-1), 1,
		math.Inf(-1)}
	s, r := layout.Shard, layout.Replicate()
	for _, c := range []struct {
		mesh   []int
		places []layout.Placement
	}{
		{[]int{1}, []layout.Placement{r}}, {[]int{2}, []layout.Placement{s(1)}}, {[]int{3}, []layout.Placement{s(0)}},
		{[]int{4}, []layout.Placement{s(1)}}, {[]int{3}, []layout.Placement{layout.ShardSizes(1, 0, 5, 1)}},
		{[]int{2, 2}, []layout.Placement{s(0), s(1)}},
		{[]int{2, 2}, []layout.Placement{s(1), s(1)}}, {[]int{2}, []layout.Placement{partial}},
	} {
		meshtest.On(t, c.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			for k := 1; k <= classes; k++ {
				for _, dt := range []tensor.DType{tensor.Float64, tensor.BFloat16} {
					if err := newRanking(n, classes, k, logits).check(ctx, m, dt, []int{n, classes}, c.places); err != nil {
						return fmt.Errorf("the %d largest of %v %v: %w", k, dt, c.places, err)
					}
				}
			}
			x := meshtest.Place(m, logits, []int{n, classes}, c.places...)
			for want, f := range map[string]func(){
				"k is 0":       func() { loss.TopK(x, 0) },
				"k is 7":       func() { loss.TopK(x, 7) },
				"0 dimensions": func() { loss.Argmax(x.Sum(nil, false)) },
				"have no class to choose": func() {
					loss.Argmax(dtensor.Zeros(m, tensor.Float32, []int{2, 0}, make([]layout.Placement, len(c.mesh))...))
				},
			} {
				if err := dtensor.Try(ctx, m, f); err == nil || !strings.Contains(err.Error(), want) {
					return fmt.Errorf("got %v, want %q", err, want)
				}
			}
			return nil
		})
	}
}

// A logit that is NaN is refused on every rank, with the position, however the logits lie.
func TestSampleOfNaN(t *testing.T) {
	logits := []float64{0, 1, 2, 3, math.NaN(), 5}
	for _, place := range []layout.Placement{layout.Replicate(), layout.Shard(1), layout.Shard(0)} {
		for _, o := range []loss.SampleOptions{{}, {TopK: 2}, {TopP: 0.5}, {Draws: 3}} {
			meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
				x := meshtest.Place(m, logits, []int{2, 3}, place)
				err := dtensor.Try(ctx, m, func() {
					drawn := loss.Sample(x, o)
					drawn.Full() // where the rank that has other positions sees it
				})
				if err == nil || !strings.Contains(err.Error(), "a logit of position 1 is NaN") {
					return fmt.Errorf("%v, %+v: got %v", place, o, err)
				}
				return nil
			})
		}
	}
}
