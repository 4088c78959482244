package optim

import (
	"cmp"
	"iter"
	"math"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
)

// A LAMBConfig sets up LAMB. The zero value has the usual constants and no weight decay.
type LAMBConfig struct {
	Beta1       float64 // decay of the mean of gradients; 0 stands for 0.9
	Beta2       float64 // decay of the mean of squares; 0 stands for 0.999
	Eps         float64 // added to the root; 0 stands for 1e-6
	WeightDecay float64 // that much of the parameter is added to Adam's direction
	NoMaster    bool    // no float32 weights beside parameters of a narrow type; see the package's section on them
}

// LAMB is Adam for large batches: each parameter moves by a part of its own norm (You et
// al., Large Batch Optimization for Deep Learning, arXiv 1904.00962, algorithm 2 with
// φ(z) = z). In step t, counted from 1, for each parameter p with gradient g,
//
//	m = Beta1·m + (1-Beta1)·g
//	v = Beta2·v + (1-Beta2)·g²
//	u = m/(1-Beta1ᵗ) / (√(v/(1-Beta2ᵗ)) + Eps) + WeightDecay·p
//	p -= lr · ‖p‖/‖u‖ · u        a ratio of 1 if one of the norms is 0
//
// The norms are those of the whole parameter. If any is sharded, a step makes one
// collective for each mesh, of two numbers for each parameter. A row-sparse gradient is
// that of a parameter whose other rows have the gradient 0.
type LAMB struct {
	base
	config LAMBConfig
	m, v   []*dtensor.Tensor
}

// NewLAMB returns a LAMB for params. It throws an error that names the field if the
// configuration makes no sense.
func NewLAMB(params []*dtensor.Tensor, c LAMBConfig) *LAMB {
	c.Beta1, c.Beta2, c.Eps = adamDefaults("NewLAMB", c.Beta1, c.Beta2, cmp.Or(c.Eps, 1e-6))
	atLeastZero("NewLAMB", "WeightDecay", c.WeightDecay)
	return &LAMB{base: newBase("LAMB", params, c.NoMaster), config: c, m: states(params), v: states(params)}
}

// State lists the moments, "m" and "v", and the steps.
func (l *LAMB) State() iter.Seq2[string, *dtensor.Tensor] {
	return l.list(kind{"m", l.m}, kind{"v", l.v})
}

// Step makes one step; see Optimizer.
func (l *LAMB) Step(grads []dtensor.Grad, lr float64) error {
	o := l.config
	return l.together(grads, lr, true, func(all []change) {
		squares := make([][2]float64, len(all)) // of p and u
		parts := make([][2]nodes, len(all))     // of their sums, with same bits
		for k, c := range all {
			same := c.param.Mesh().SameBits()
			c.apply(func(p, g *tensor.Tensor, s []*tensor.Tensor) {
				average(s[0], o.Beta1, g)
				average(s[1], o.Beta2, square(g))
				if same {
					return
				}
				for i, sum := range tensor.SumSquares(p, l.direction(p, s, c.step)) {
					squares[k][i] += sum
				}
			}, l.m, l.v)
			if same {
				parts[k] = l.nodes(c)
			}
		}
		sumOfShards("LAMB", all, squares, parts)
		for k, c := range all {
			rate := lr
			if s := squares[k]; s[0] > 0 && s[1] > 0 {
				rate *= math.Sqrt(s[0] / s[1])
			}
			c.apply(func(p, _ *tensor.Tensor, s []*tensor.Tensor) {
				tensor.AddScaledTo(p, -rate, l.direction(p, s, c.step))
			}, l.m, l.v)
		}
	})
}

// nodes returns this rank's nodes of the squares of the parameter and of u, with same bits.
func (l *LAMB) nodes(c change) [2]nodes {
	scope := c.local.Device().Open()
	defer scope.Close()
	whole := func(local *tensor.Tensor) *dtensor.Tensor {
		return c.param.Mesh().Wrap("LAMB", local, nil, false, c.param.Shape(), c.param.Placements()...)
	}
	p := tensor.Widen(c.local)
	return [2]nodes{newNodes(whole(p)), newNodes(whole(l.direction(p, []*tensor.Tensor{l.m[c.i].Local(), l.v[c.i].Local()}, c.step)))}
}

// direction returns u of a step from its updated moments.
func (l *LAMB) direction(p *tensor.Tensor, s []*tensor.Tensor, step int) *tensor.Tensor {
	o := l.config
	root := math.Sqrt(1 - math.Pow(o.Beta2, float64(step)))
	// m/a/(√v/root + Eps) is root/a·m/(√v + root·Eps).
	u := overRoot(s[0], s[1], root*o.Eps)
	tensor.ScaleTo(u, root/(1-math.Pow(o.Beta1, float64(step))))
	if o.WeightDecay != 0 {
		tensor.AddScaledTo(u, o.WeightDecay, p)
	}
	return u
}

// sumOfShards turns sums over this rank's part of each parameter into sums over the whole
// parameter, with one collective for each mesh, over the axes that shard any parameter. With same bits it sets them from parts.
func sumOfShards(cause string, all []change, sums [][2]float64, parts [][2]nodes) {
	meshes, pieces := []*dtensor.Mesh{}, make([]piece, len(all))
	for k, c := range all {
		pieces[k] = newPiece(c.i, c.param, c.local)
		meshes = addMesh(meshes, c.param.Mesh())
	}
	for _, m := range meshes {
		if m.SameBits() {
			sumOfParts(cause, m, all, sums, parts)
			continue
		}
		axes := shardAxes(m, pieces)
		names := axisNames(m, axes)
		if !m.Inside() || len(names) == 0 {
			continue
		}
		var flat []float64
		for k, p := range pieces {
			if p.mesh == m {
				own := [2]float64{}
				if isFirst(m, axes&^p.shards) {
					own = sums[k]
				}
				flat = append(flat, own[:]...)
			}
		}
		allReduce(m, m.Group(names...), comm.Sum, comm.Call{Cause: cause}, flat)
		for k, p := range pieces {
			if p.mesh == m {
				sums[k] = [2]float64(flat)
				flat = flat[2:]
			}
		}
	}
}

// sumOfParts sets the sums of the parameters of a mesh with same bits.
func sumOfParts(cause string, m *dtensor.Mesh, all []change, sums [][2]float64, parts [][2]nodes) {
	if !m.Inside() {
		return
	}
	var list []nodes
	for k, c := range all {
		if c.param.Mesh() == m {
			list = append(list, parts[k][:]...)
		}
	}
	flat := sumsOfNodes(comm.Call{Cause: cause}, m, list)
	for k, c := range all {
		if c.param.Mesh() == m {
			sums[k] = [2]float64(flat)
			flat = flat[2:]
		}
	}
}
