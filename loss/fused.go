package loss

import (
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/tensor"
)

// tiled is one LinearCrossEntropy on one rank.
type tiled struct {
	*job
	most                   limits         // of a block
	hidden, weight         *tensor.Tensor // local: [positions, H] and [n, H]
	wantHidden, wantWeight bool
	dHidden, dWeight       *tensor.Tensor // of the sum of the losses; nil if not wanted
}

// tileRest is the part of the workspace, in bytes, for the rows of all positions; a tile has
// the other.
const tileRest = 16 << 20

// tilePositions returns how many positions a tile has. Ranks that share positions get
// the same number, with same bits that of one rank.
func (t *tiled) tilePositions() int {
	w := t.o.workspace()
	bytes := w - min(tileRest, w/4)
	return max(1, bytes/t.dtype.Size()/max(t.classesOfRank(), 1))
}

// classesOfRank returns how many classes a rank has if they are divided evenly, rounded
// up: the same number on all ranks that share positions. With leaves it is all of them.
func (t *tiled) classesOfRank() int {
	ranks := 1
	if t.classGroup != nil && t.leaf == 0 {
		ranks = t.classGroup.Size()
	}
	return (t.classes + ranks - 1) / ranks
}

// fused returns the local result and computes the gradients of the sum of the
// losses, tile by tile:
//
//	logits = hidden·weightᵀ, of the tile's positions
//	dLogits, over the logits
//	dHidden = dLogits·weight     dWeight += dLogitsᵀ·hidden
func fused[T dtype.Float](t *tiled) *tensor.Tensor {
	bad := t.label()
	if t.wantHidden {
		t.dHidden = tensor.NewLike(t.hidden)
	}
	switch {
	case t.wantWeight && t.outer > 0:
		t.dWeight = tensor.NewLike(t.weight) // the first tile writes it
	case t.wantWeight:
		t.dWeight = tensor.ZerosLike(t.weight)
	}
	dev, run := t.hidden.Device(), min(t.tilePositions(), max(t.outer, 1))
	tile := tensor.New(dev, t.dtype, run, t.n)
	defer tile.Free()
	for at := 0; at < t.outer; at += run {
		k := min(run, t.outer-at)
		h := tensor.Narrow(t.hidden, 0, at, k)
		logits := tensor.Narrow(tile, 0, 0, k)
		tensor.MatMulTo(logits, h, t.weight, false, true, false)
		j := t.part(at, k, logits)
		stats := hardStats[T](j)
		combine[T](j, stats)
		stats.Free()
		if !t.wantHidden && !t.wantWeight {
			continue
		}
		ones := make([]T, k)
		for i := range j.rows {
			if r := &j.rows[i]; r.use {
				j.finish(r)
				ones[i] = 1
			}
		}
		shift, coef := coefficients(j, ones)
		tensor.CrossEntropyGrad(logits, logits, j.y, j.lo, shift, coef, j.weight)
		shift.Free()
		coef.Free()
		if t.wantHidden {
			tensor.MatMulTo(tensor.Narrow(t.dHidden, 0, at, k), logits, t.weight, false, false, false)
		}
		if t.wantWeight {
			tensor.MatMulTo(t.dWeight, logits, h, true, false, at > 0)
		}
	}
	return reduce[T](t.job, bad)
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
