package loss

import "github.com/gorun-spmd/gorun/tensor"

// How much is held at a time of hidden and weight of bfloat16.
const (
	// halfTile is how many logits a tile has: 16 MiB as float32, and 8 MiB of their
	// gradient.
	halfTile = 4 << 20
	// halfRows is the most positions of a block, so that a tile has at least 1024
	// classes of each.
	halfRows = halfTile >> 10
	// halfHidden is how many elements of the gradient of hidden are added up at a
	// time, over the tiles of a block: 28 MiB.
	halfHidden = 7 << 20
	// halfWeight is how many elements the gradient of the weight may have to be added
	// up in float32 over the blocks, 8 MiB.
	halfWeight = 2 << 20
)

// A block is some of the positions, with what is held for all of their tiles.
type block struct {
	*job
	at     int            // of the first position
	hidden *tensor.Tensor // [positions, H]
	width  int            // classes of a tile
	logits *tensor.Tensor // room for those of a tile
	grad   *tensor.Tensor // and for their gradient, in bfloat16
}

// blocks is fused for bfloat16. For each block of positions
//
//	logits = hidden·weightᵀ, of the tile's classes, in float32
//	statistics of all tiles, joined
//
// and then, tile by tile from the last, whose logits are still there,
//
//	logits again
//	dLogits, in bfloat16
//	dHidden += dLogits·weight     dWeight += dLogitsᵀ·hidden
func (t *tiled) blocks() *tensor.Tensor {
	bad := t.label()
	dev, width := t.hidden.Device(), t.hidden.Dim(1)
	if t.wantHidden {
		t.dHidden = tensor.NewLike(t.hidden)
	}
	size := t.blockSize(width)
	var dWeight *tensor.Tensor // what is added up: t.dWeight or the same in float32
	if t.wantWeight {
		t.dWeight = tensor.NewLike(t.weight) // the first block writes it
		if dWeight = t.dWeight; size < t.outer && t.n*width <= halfWeight {
			dWeight = tensor.New(dev, tensor.Float32, t.n, width)
			defer dWeight.Free()
		}
		if t.outer == 0 {
			tensor.Fill(t.dWeight, 0)
		}
	}
	b := block{width: min(t.n, max(1, halfTile/max(size, 1)))}
	b.logits = tensor.New(dev, tensor.Float32, size*b.width)
	defer b.logits.Free()
	if t.wantHidden || t.wantWeight {
		b.grad = tensor.New(dev, tensor.BFloat16, size*b.width)
		defer b.grad.Free()
	}
	for at := 0; at < t.outer; at += size {
		k := min(size, t.outer-at)
		b.at, b.job, b.hidden = at, t.part(at, k, nil), tensor.Narrow(t.hidden, 0, at, k)
		stats := b.stats(t.weight)
		combine[float32](b.job, stats)
		stats.Free()
		if b.grad != nil {
			b.gradients(t, dWeight)
		}
	}
	if t.wantWeight && dWeight != t.dWeight {
		tensor.CastTo(t.dWeight, dWeight)
	}
	return reduce[float32](t.job, bad)
}

// blockSize returns how many positions a block has. All ranks that share positions
// come to the same.
func (t *tiled) blockSize(width int) int {
	most := max(1, min(halfRows, halfHidden/max(width, 1)))
	n := max(1, (t.outer+most-1)/most)
	return (t.outer + n - 1) / n
}

// tiles calls f for each tile of the block, the classes lo to lo+n of the local ones,
// in the order of the classes or backwards.
func (b *block) tiles(backwards bool, f func(lo, n int)) {
	if b.n == 0 {
		return
	}
	count := (b.n + b.width - 1) / b.width
	for i := range count {
		if backwards {
			i = count - 1 - i
		}
		f(i*b.width, min(b.width, b.n-i*b.width))
	}
}

// view returns rows of n elements, one for each position, in room.
func (b *block) view(room *tensor.Tensor, n int) *tensor.Tensor {
	return tensor.Narrow(room, 0, 0, b.outer*n).Reshape(b.outer, n)
}

// weightsOf returns the class weights of a tile, nil if they are all 1.
func (b *block) weightsOf(lo, n int) *tensor.Tensor {
	if b.weight == nil {
		return nil
	}
	return tensor.Narrow(b.weight, 0, lo, n)
}

// stats returns those of hardStats for all tiles of the block.
func (b *block) stats(weight *tensor.Tensor) (stats *tensor.Tensor) {
	sums, weights := b.o.LabelSmoothing > 0, 0.0 // of the classes so far
	b.tiles(false, func(lo, n int) {
		logits := b.view(b.logits, n)
		tensor.MatMulTo(logits, b.hidden, tensor.Narrow(weight, 0, lo, n), false, true, false)
		its := tensor.CrossEntropyStats(logits, b.y, b.lo+lo, b.weightsOf(lo, n), sums)
		here := 0.0
		if sums {
			here = b.weightOf(b.lo+lo, n)
		}
		if stats == nil {
			stats = its
		} else {
			tensor.CrossEntropyJoin(stats, its, weights, here)
			its.Free()
		}
		weights += here
	})
	if stats == nil { // no classes
		stats = tensor.CrossEntropyStats(b.view(b.logits, 0), b.y, b.lo, b.weight, sums)
	}
	return smoothed[float32](b.job, stats)
}

// gradients computes those of the block, and adds to dWeight after the first. The
// logits of the last tile are there.
func (b *block) gradients(t *tiled, dWeight *tensor.Tensor) {
	ones := make([]float32, b.outer)
	for i := range b.rows {
		if r := &b.rows[i]; r.use {
			b.finish(r)
			ones[i] = 1
		}
	}
	shift, coef := coefficients(b.job, ones)
	defer shift.Free()
	defer coef.Free()
	var dHidden, sum *tensor.Tensor
	if t.wantHidden {
		dHidden = tensor.Narrow(t.dHidden, 0, b.at, b.outer)
		if sum = dHidden; b.n > b.width {
			sum = tensor.New(dHidden.Device(), tensor.Float32, dHidden.Shape()...)
			defer sum.Free()
		}
		if b.n == 0 {
			tensor.Fill(sum, 0)
		}
	}
	last := true
	b.tiles(true, func(lo, n int) {
		logits, grad, weight := b.view(b.logits, n), b.view(b.grad, n), tensor.Narrow(t.weight, 0, lo, n)
		if !last {
			tensor.MatMulTo(logits, b.hidden, weight, false, true, false)
		}
		tensor.CrossEntropyGrad(grad, logits, b.y, b.lo+lo, shift, coef, b.weightsOf(lo, n))
		if t.wantHidden {
			tensor.MatMulTo(sum, grad, weight, false, false, !last)
		}
		if t.wantWeight {
			tensor.MatMulTo(tensor.Narrow(dWeight, 0, lo, n), grad, b.hidden, true, false, b.at > 0)
		}
		last = false
	})
	if sum != dHidden {
		tensor.CastTo(dHidden, sum)
	}
}
