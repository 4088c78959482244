package loss

import (
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/tensor"
)

// The defaults of limits.
const (
	blockRows  = 2048    // positions: on an H100 products of so many are as fast as larger ones
	blockWhole = 512     // positions that a block must have for all classes to be one tile
	blockRest  = 4 << 20 // bytes left of the workspace, for the numbers of each position
)

// limits bound the size of a block.
type limits struct {
	rows      int  // positions
	wholeRows int  // with fewer positions in a block, the classes are not one tile
	bytes     int  // of the buffers beside the gradients
	onCPU     bool // float32 and float64 are computed in blocks on a CPU too
}

// hiddenBytes bounds the gradient of a block's hidden if it is added up in float32 over the
// tiles.
func (l limits) hiddenBytes() int { return l.bytes / 8 * 3 }

// weightBytes bounds the gradient of the weight that is added up in float32 over the
// blocks; a larger one is rounded after each block.
func (l limits) weightBytes() int { return l.bytes / 8 }

// The number of classes of a tile is a multiple of tileStep: cuBLAS is several times
// slower if rows are no multiple of 16 bytes.
const tileStep = 128

// A block is some of the positions, with the memory that all of their tiles share.
type block[T dtype.Float] struct {
	*job
	at     int            // of the first position
	hidden *tensor.Tensor // [positions, H]
	cuts   []int          // where the tiles begin, and the last ends, in the local classes
	logits *tensor.Tensor // room for those of a tile
	grad   *tensor.Tensor // and for their gradient: the same room, but of bfloat16 another
}

// blocks takes the place of fused for bfloat16, and for all types on a GPU, where tiles of
// few positions would mostly read and write the gradient of the weight. For each block of
// positions it computes
//
//	logits = hidden·weightᵀ, of the tile's classes, float32 for bfloat16
//	statistics of all tiles, joined
//
// and then, tile by tile, beginning with the last, whose logits are still in memory,
//
//	logits again
//	dLogits, over the logits or in bfloat16
//	dHidden += dLogits·weight     dWeight += dLogitsᵀ·hidden
func blocks[T dtype.Float](t *tiled) *tensor.Tensor {
	bad := t.label()
	dev, width, half := t.hidden.Device(), t.hidden.Dim(1), t.dtype.Narrow()
	if t.wantHidden {
		t.dHidden = tensor.NewLike(t.hidden)
	}
	size, room, perLogit := t.blockSize(width), t.most.bytes, t.logitBytes()
	if half {
		room -= size * width * t.wide.Size()
	}
	var dWeight *tensor.Tensor // what is added up: t.dWeight or the same in float32
	if t.wantWeight {
		t.dWeight = tensor.NewLike(t.weight) // the first block writes it
		if dWeight = t.dWeight; half && size < t.outer && t.n*width*t.wide.Size() <= t.most.weightBytes() {
			dWeight = tensor.New(dev, t.wide, t.n, width)
			defer dWeight.Free()
			room -= dWeight.Bytes()
		}
		if t.outer == 0 {
			tensor.Fill(t.dWeight, 0)
		}
	}
	b := block[T]{cuts: cuts(t.n, room/perLogit/max(size, 1))}
	widest := 0
	for i := range len(b.cuts) - 1 {
		widest = max(widest, b.cuts[i+1]-b.cuts[i])
	}
	b.logits = tensor.New(dev, t.wide, size*widest)
	defer b.logits.Free()
	if b.grad = b.logits; half && (t.wantHidden || t.wantWeight) {
		b.grad = tensor.New(dev, t.dtype, size*widest)
		defer b.grad.Free()
	}
	for at := 0; at < t.outer; at += size {
		k := min(size, t.outer-at)
		b.at, b.job, b.hidden = at, t.part(at, k, nil), tensor.Narrow(t.hidden, 0, at, k)
		stats := b.stats(t.weight)
		combine[T](b.job, stats)
		stats.Free()
		if t.wantHidden || t.wantWeight {
			b.gradients(t, dWeight)
		}
	}
	if dWeight != t.dWeight {
		tensor.CastTo(t.dWeight, dWeight)
	}
	return reduce[T](t.job, bad)
}

// blockSize returns how many positions of width numbers a block has: as many as the
// workspace holds logits of all classes for, unless these are too few. Ranks that share
// positions get the same number.
func (t *tiled) blockSize(width int) int {
	most, perRow, bytes := t.most.rows, t.logitBytes()*t.classesOfRank(), t.most.bytes
	if t.dtype.Narrow() {
		most = max(1, min(most, t.most.hiddenBytes()/t.wide.Size()/max(width, 1)))
		perRow += width * t.wide.Size()
		bytes -= t.most.weightBytes()
	}
	if whole := bytes / max(perRow, 1); whole >= t.most.wholeRows {
		most = min(most, whole)
	}
	n := max(1, (t.outer+most-1)/most)
	return (t.outer + n - 1) / n
}

// logitBytes returns how many bytes a block needs for each logit and its gradient.
func (t *tiled) logitBytes() int {
	if t.dtype.Narrow() {
		return t.wide.Size() + t.dtype.Size()
	}
	return t.wide.Size()
}

// cuts returns where tiles of n classes begin and the last ends, for tiles of up to
// width. All but one, of less than tileStep, have a multiple of tileStep classes.
func cuts(n, width int) []int {
	at := []int{0}
	for lo := 0; lo < n; {
		k := max(1, min(width, n-lo))
		if k > tileStep {
			k -= k % tileStep
		}
		lo += k
		at = append(at, lo)
	}
	return at
}

// tiles calls f for each tile of the block, the classes lo to lo+n of the local ones,
// in the order of the classes or backwards.
func (b *block[T]) tiles(backwards bool, f func(lo, n int)) {
	last := len(b.cuts) - 2
	for i := range last + 1 {
		if backwards {
			i = last - i
		}
		f(b.cuts[i], b.cuts[i+1]-b.cuts[i])
	}
}

// view returns rows of n elements, one for each position, in room.
func (b *block[T]) view(room *tensor.Tensor, n int) *tensor.Tensor {
	return tensor.Narrow(room, 0, 0, b.outer*n).Reshape(b.outer, n)
}

// weightsOf returns the class weights of a tile, nil if they are all 1.
func (b *block[T]) weightsOf(lo, n int) *tensor.Tensor {
	if b.weight == nil {
		return nil
	}
	return tensor.Narrow(b.weight, 0, lo, n)
}

// stats returns the statistics of hardStats over all tiles of the block.
func (b *block[T]) stats(weight *tensor.Tensor) (stats *tensor.Tensor) {
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
	return smoothed[T](b.job, stats)
}

// gradients computes the gradients of the block; from the second block on it adds to
// dWeight. The logits of the last tile are still in memory.
func (b *block[T]) gradients(t *tiled, dWeight *tensor.Tensor) {
	ones := make([]T, b.outer)
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
		if sum = dHidden; len(b.cuts) > 2 && b.wide != b.dtype {
			sum = tensor.New(dHidden.Device(), b.wide, dHidden.Shape()...)
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
