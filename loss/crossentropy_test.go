package loss_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/internal/testenv"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/tensor"
)

var meshes = testenv.Fewer([][]int{{1}, {2}, {3}, {4}, {2, 2}, {1, 3}}, 2, 4)

// questions are variants over 5 positions and 7 classes, so that no mesh divides
// them evenly, and over shapes with next to nothing in them.
func questions() map[string]*question {
	all := map[string]*question{}
	for _, r := range []loss.Reduction{loss.Mean, loss.Sum, loss.None} {
		base := question{n: 5, c: 7, logits: meshtest.Numbers(35, 1, 4), targets: []int64{6, -100, 0, 3, 6}, ignore: -100, reduction: r}
		add := func(name string, change func(q *question)) {
			q := base
			change(&q)
			all[fmt.Sprintf("%s %v", name, r)] = &q
		}
		weights := []float64{0.5, 2, 0, 1, 0.1, 3, 0.7}
		add("plain", func(q *question) {})
		add("weighted", func(q *question) { q.weight = weights })
		add("smooth", func(q *question) { q.smoothing = 0.1 })
		add("everything", func(q *question) {
			q.weight, q.smoothing, q.z, q.ignore, q.targets = weights, 0.3, 0.01, 6, []int64{6, 2, 0, 3, 5}
		})
		add("only smoothing", func(q *question) { q.smoothing = 1 })
		add("z-loss", func(q *question) { q.z = 1e-2 })
		add("all ignored", func(q *question) { q.targets = []int64{-100, -100, -100, -100, -100} })
		add("all ignored, smooth", func(q *question) { q.targets, q.smoothing = []int64{-100, -100, -100, -100, -100}, 0.5 })
		add("one class", func(q *question) { q.c, q.logits, q.targets = 1, meshtest.Numbers(5, 1, 3), make([]int64, 5) })
		add("one position", func(q *question) { q.n, q.logits, q.targets = 1, meshtest.Numbers(7, 1, 3), []int64{2} })
		add("no positions", func(q *question) { q.n, q.logits, q.targets = 0, nil, nil })
		add("probabilities", func(q *question) { q.probs = meshtest.Numbers(35, 8, 1) })
		add("probabilities, everything", func(q *question) {
			q.probs, q.weight, q.smoothing, q.z = meshtest.Numbers(35, 8, 1), weights, 0.2, 0.05
		})
	}
	return all
}

// TestEveryLayout compares losses and gradients with the loops for every
// placement of logits on every axis, Partial among them, with targets and
// weights in several.
func TestEveryLayout(t *testing.T) {
	for name, q := range questions() {
		t.Run(name, func(t *testing.T) {
			for _, mesh := range meshes {
				meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
					whole := make([]layout.Placement, len(mesh))
					for i, lp := range meshtest.Combinations(len(mesh), replicate, shard0, shard1, partial) {
						tp, wp := whole, whole
						if i%2 == 1 {
							tp, wp = meshtest.Combinations(len(mesh), shard0)[0], meshtest.Combinations(len(mesh), shard0)[0]
						}
						if err := q.check(ctx, m, lp, tp, wp); err != nil {
							return fmt.Errorf("logits %v, targets %v: %w", lp, tp, err)
						}
					}
					return nil
				})
			}
		})
	}
}

func TestUnevenClasses(t *testing.T) {
	q := questions()["everything mean"]
	meshtest.On(t, []int{4}, func(ctx context.Context, m *dtensor.Mesh) error {
		for _, p := range []layout.Placement{layout.ShardSizes(1, 0, 5, 0, 2), layout.ShardSizes(0, 1, 0, 4, 0)} {
			if err := q.check(ctx, m, []layout.Placement{p}, []layout.Placement{replicate}, []layout.Placement{replicate}); err != nil {
				return fmt.Errorf("%v: %w", p, err)
			}
		}
		return nil
	})
}

// TestMoreDimensions has logits [C] and [N, C, d1, d2], for which the loops see
// the positions in another order.
func TestMoreDimensions(t *testing.T) {
	const n, c, d1, d2 = 2, 5, 3, 2
	for name, q := range questions() {
		if q.n != 5 || q.c != 7 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			// The question with its positions as [n, d1, d2].
			flat := *q
			flat.n, flat.c = n*d1*d2, c
			flat.logits = meshtest.Numbers(n*c*d1*d2, 3, 3)
			flat.targets = []int64{0, 1, 4, q.ignore, 2, 2, 3, 3, 1, q.ignore, 4, 4}
			if q.ignore == 6 {
				flat.targets[3], flat.targets[9] = 6, 6
			}
			if q.probs != nil {
				flat.probs = meshtest.Numbers(n*c*d1*d2, 4, 1)
			}
			if q.weight != nil {
				flat.weight = q.weight[:c]
			}
			for _, mesh := range [][]int{{1}, {2}, {2, 2}} {
				meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
					whole := make([]layout.Placement, len(mesh))
					gy, _ := flat.gradient(m)
					want, wantGrad := flat.answer(gy)
					for _, lp := range meshtest.Combinations(len(mesh), replicate, shard0, shard1, layout.Shard(3)) {
						x := meshtest.Place(m, channelsFirst(flat.logits, n, c, d1*d2), []int{n, c, d1, d2}, lp...)
						y := meshtest.Place(m, flat.targets, []int{n, d1, d2}, whole...)
						if flat.probs != nil {
							y = meshtest.Place(m, channelsFirst(flat.probs, n, c, d1*d2), []int{n, c, d1, d2}, whole...)
						}
						shape := []int{}
						if flat.reduction == loss.None {
							shape = []int{n, d1, d2}
						}
						g := meshtest.Place(m, gy, shape, whole...)
						var failed error
						_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
							l := loss.CrossEntropy(x, y, flat.options(m, whole...))
							failed = near("loss", l.Full(), want, 1e-11)
							return l.Mul(g).Sum(nil, false)
						}, x)
						if err != nil || failed != nil {
							return fmt.Errorf("logits %v: %v %v", lp, err, failed)
						}
						if err := near("gradient", grads[0].Dense().Full(), channelsFirst(wantGrad, n, c, d1*d2), 1e-11); err != nil {
							return fmt.Errorf("logits %v: %w", lp, err)
						}
					}
					return nil
				})
			}
		})
	}
}

// channelsFirst turns [n·d, c] into [n, c, d].
func channelsFirst(x []float64, n, c, d int) []float64 {
	y := make([]float64, len(x))
	for i := range n {
		for j := range d {
			for k := range c {
				y[(i*c+k)*d+j] = x[(i*d+j)*c+k]
			}
		}
	}
	return y
}

func TestClassesAlone(t *testing.T) {
	q := &question{n: 1, c: 7, logits: meshtest.Numbers(7, 1, 4), targets: []int64{4}, ignore: -100}
	for _, mesh := range [][]int{{1}, {2}, {4}} {
		for _, p := range []layout.Placement{replicate, shard0} {
			meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				want, wantGrad := q.answer([]float64{1})
				x, y := meshtest.Place(m, q.logits, []int{7}, p), meshtest.Place(m, q.targets, nil, replicate)
				l, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return loss.CrossEntropy(x, y, loss.Options{}) }, x)
				if err != nil {
					return err
				}
				if err := near("loss", l.Full(), want, 1e-12); err != nil {
					return err
				}
				return near("gradient", grads[0].Dense().Full(), wantGrad, 1e-12)
			})
		}
	}
}

// TestExtremeLogits has logits that overflow exp, are all equal, or are -Inf
// where a class is masked out, in float32.
func TestExtremeLogits(t *testing.T) {
	inf := math.Inf(1)
	for name, c := range map[string]struct {
		logits []float64
		target int64
		loss   float64
		grad   []float64
	}{
		"one huge":         {[]float64{1e4, 0, 0, -1e4}, 0, 0, []float64{0, 0, 0, 0}},
		"huge elsewhere":   {[]float64{1e4, 0, 0, -1e4}, 3, 2e4, []float64{1, 0, 0, -1}},
		"all equal":        {[]float64{88, 88, 88, 88}, 1, math.Log(4), []float64{0.25, -0.75, 0.25, 0.25}},
		"all very low":     {[]float64{-1e4, -1e4, -1e4, -1e4}, 2, math.Log(4), []float64{0.25, 0.25, -0.75, 0.25}},
		"masked classes":   {[]float64{-inf, 1, 1, -inf}, 1, math.Log(2), []float64{0, -0.5, 0.5, 0}},
		"a shard masked":   {[]float64{-inf, -inf, 2, 2}, 3, math.Log(2), []float64{0, 0, 0.5, -0.5}},
		"target is masked": {[]float64{0, 0, 0, -inf}, 3, inf, []float64{1. / 3, 1. / 3, 1. / 3, -1}},
		"all are masked":   {[]float64{-inf, -inf, -inf, -inf}, 3, math.NaN(), []float64{math.NaN(), math.NaN(), math.NaN(), math.NaN()}},
	} {
		for _, n := range []int{1, 2, 4} {
			meshtest.On(t, []int{n}, func(ctx context.Context, m *dtensor.Mesh) error {
				var logits []float32
				for _, v := range c.logits {
					logits = append(logits, float32(v))
				}
				x, y := meshtest.Place(m, logits, []int{1, 4}, shard1), meshtest.Place(m, []int64{c.target}, []int{1}, replicate)
				l, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return loss.CrossEntropy(x, y, loss.Options{}) }, x)
				if err != nil {
					return err
				}
				if err := near(name, l.Full(), []float64{c.loss}, 1e-6); err != nil {
					return err
				}
				return near(name+": gradient", grads[0].Dense().Full(), c.grad, 1e-6)
			})
		}
	}
}

// TestIgnoredPositionsHideTheirLogits: NaN there does no harm.
func TestIgnoredPositionsHideTheirLogits(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		nan := math.NaN()
		x := meshtest.Place(m, []float64{1, 1, nan, nan}, []int{2, 2}, shard1)
		y := meshtest.Place(m, []int64{0, -100}, []int{2}, replicate)
		l, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return loss.CrossEntropy(x, y, loss.Options{}) }, x)
		if err != nil {
			return err
		}
		if err := near("loss", l.Full(), []float64{math.Log(2)}, 1e-12); err != nil {
			return err
		}
		return near("gradient", grads[0].Dense().Full(), []float64{-0.5, 0.5, 0, 0}, 1e-12)
	})
}

func TestInt32Targets(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		x := meshtest.Place(m, []float32{1, 2, 3, 4, 5, 6}, []int{2, 3}, shard1)
		a := loss.CrossEntropy(x, meshtest.Place(m, []int32{2, 0}, []int{2}, replicate), loss.Options{}).Full()
		b := loss.CrossEntropy(x, meshtest.Place(m, []int64{2, 0}, []int{2}, replicate), loss.Options{}).Full()
		return near("loss", a, []float64{float64(tensor.ToSlice[float32](b)[0])}, 0)
	})
}
