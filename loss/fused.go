package loss

import (
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// tiled is one LinearCrossEntropy on one rank.
type tiled struct {
	*job
	most                   limits         // of a block
	hidden, weight         *tensor.Tensor // local: [positions, H] and [n, H]
	wantHidden, wantWeight bool
	dHidden, dWeight       *tensor.Tensor // of the sum of the losses; nil if not wanted. Of fused dHidden is of each node, and wide
}

// tileRest is the part of the workspace, in bytes, for the rows of all positions; a tile has
// the other.
const tileRest = 16 << 20

// tilePositions returns how many positions a tile has, the same on any number of ranks.
func (t *tiled) tilePositions() int {
	w := t.o.workspace()
	bytes := w - min(tileRest, w/4)
	return max(1, bytes/t.logitBytes()/max(t.classes, 1))
}

// fused is blocks on a CPU with same bits: it computes tiles of positions with all classes of the rank, and in a
// tile node by node:
//
//	logits = hidden·weightᵀ, of the tile's positions, float32 for bfloat16
//	dLogits, over the logits or in bfloat16
//	dHidden = dLogits·weight     dWeight += dLogitsᵀ·hidden
func fused[T dtype.Float](t *tiled) *tensor.Tensor {
	bad := t.label()
	dev, width := t.hidden.Device(), t.hidden.Dim(1)
	if t.wantHidden {
		t.dHidden = tensor.New(dev, t.wide, len(t.mine)*t.outer, width)
	}
	run := min(t.tilePositions(), max(t.outer, 1))
	var dWeight *tensor.Tensor // what is added up: t.dWeight or the same in float32
	if t.wantWeight {
		t.dWeight = tensor.NewLike(t.weight) // the first tile writes it
		if dWeight = t.dWeight; t.dtype.Narrow() && run < t.outer && t.classes*width*t.wide.Size() <= t.most.weightBytes() {
			dWeight = tensor.New(dev, t.wide, t.n, width)
			defer dWeight.Free()
		}
		if t.outer == 0 {
			tensor.Fill(t.dWeight, 0)
		}
	}
	tile, stats := tensor.New(dev, t.wide, run*t.n), tensor.New(dev, t.wide, len(t.mine)*run, kernel.Stats)
	defer tile.Free()
	defer stats.Free()
	grad := tile // of the logits
	if t.dtype.Narrow() && (t.wantHidden || t.wantWeight) {
		grad = tensor.New(dev, t.dtype, run*t.n)
		defer grad.Free()
	}
	for at := 0; at < t.outer; at += run {
		k := min(run, t.outer-at)
		h := tensor.Narrow(t.hidden, 0, at, k)
		nodes := t.nodesOf(at, k, tile)
		for i, j := range nodes {
			t.mesh.MatMulTo(t.product("logits", i, at, j.lo), j.x, h, j.of(t, t.weight), false, true, false)
			its := hardStats[T](j)
			tensor.Copy(tensor.Narrow(stats, 0, i*k, k), its)
			its.Free()
		}
		combine[T](nodes[0], tensor.Narrow(stats, 0, 0, len(nodes)*k))
		if !t.wantHidden && !t.wantWeight {
			continue
		}
		ones := make([]T, k)
		for i := range nodes[0].rows {
			if r := &nodes[0].rows[i]; r.use {
				t.finish(r)
				ones[i] = 1
			}
		}
		shift, coef := coefficients(nodes[0], ones)
		for i, j := range nodes {
			dx := j.in(t, grad)
			tensor.CrossEntropyGrad(dx, j.x, j.y, j.lo, shift, coef, j.weight)
			if t.wantHidden {
				dHidden := tensor.Narrow(t.dHidden, 0, i*t.outer+at, k)
				t.mesh.MatMulTo(t.product("gradient of hidden", i, at, 0), dHidden, dx, j.of(t, t.weight), false, false, false)
			}
			if t.wantWeight {
				t.mesh.MatMulTo(t.product("gradient of weight", i, j.lo, 0), j.of(t, dWeight), dx, h, true, false, at > 0)
			}
		}
		shift.Free()
		coef.Free()
	}
	if dWeight != t.dWeight && t.outer > 0 {
		tensor.CastTo(t.dWeight, dWeight)
	}
	return reduce[T](t.job, bad)
}

// product names one of the products of node number node of the classes, which begins at that row and column.
func (t *tiled) product(what string, node, row, col int) dtensor.Part {
	return dtensor.Part{Op: t.op + ": " + what, Offset: []int{row, col}, Node: node, Nodes: len(t.mine)}
}

// nodesOf returns the jobs of k positions from at on, for each node of the classes, whose logits are in
// tile one after another.
func (t *tiled) nodesOf(at, k int, tile *tensor.Tensor) (nodes []*job) {
	lo := 0
	for _, leaves := range t.mine {
		n := t.n / ints.Sum(t.mine) * leaves
		j := t.part(at, k, nil)
		if j.lo, j.n, j.mine = t.lo+lo, n, []int{leaves}; j.weight != nil {
			j.weight = tensor.Narrow(j.weight, 0, lo, n)
		}
		j.x = j.in(t, tile)
		nodes, lo = append(nodes, j), lo+n
	}
	return nodes
}

// part returns the job of k positions from at on, whose logits are x. It shares
// their rows.
func (t *tiled) part(at, k int, x *tensor.Tensor) *job {
	p := *t.sharding
	p.outer = k
	j := *t.job
	j.sharding, j.x, j.rows = &p, x, t.rows[at:at+k] // x may be nil: what reads it is not called
	j.y = tensor.Narrow(t.y.Reshape(t.outer), 0, at, k)
	return &j
}

// in returns the room of a node's logits in that of a tile.
func (j *job) in(t *tiled, tile *tensor.Tensor) *tensor.Tensor {
	return tensor.Narrow(tile, 0, j.outer*(j.lo-t.lo), j.outer*j.n).Reshape(j.outer, j.n)
}

// of returns the rows of a tensor of t's local classes that are a node's.
func (j *job) of(t *tiled, rows *tensor.Tensor) *tensor.Tensor {
	return tensor.Narrow(rows, 0, j.lo-t.lo, j.n)
}
