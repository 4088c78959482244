package loss

import (
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// limits bound the size of a block and of its tiles.
type limits struct {
	rows      int // positions of a block
	wholeRows int // with fewer positions in a block, it has tiles whose logits are computed twice
	bytes     int // of the buffers beside the gradients
	tileBytes int // of the logits of a tile
}

// limitsOf returns the limits for a workspace of w bytes.
func limitsOf(dev tensor.Device, w int) limits {
	l := limits{
		rows:      2048,                 // on an H100 products of so many positions are as fast as larger ones
		wholeRows: 512,                  // there
		bytes:     w - min(4<<20, w/16), // what is left is for the numbers of each position
		tileBytes: w,                    // few large kernels
	}
	if tensor.OnHost(dev) {
		l.wholeRows = 64      // reading and writing the gradient of the weight costs less than a product more
		l.tileBytes = 4 << 20 // what follows a product finds its tile in the cache
	}
	return l
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
	kept   int            // the first tile whose logits, and those of all after it, are not computed twice
	logits *tensor.Tensor // room for those of the kept tiles; the others take turns there
	grad   *tensor.Tensor // room for the gradient of a tile's logits; nil: it takes the place of the logits
}

// blocks returns the local result and computes the gradients of the sum of the losses. For each block
// of positions it computes
//
//	logits = hidden·weightᵀ, of a tile of classes, float32 for bfloat16
//	statistics of all tiles, joined
//
// and then, tile by tile, beginning with the last, as those may be in a cache,
//
//	logits again, of those tiles that the workspace does not hold
//	dLogits, over the logits or in bfloat16
//	dHidden += dLogits·weight     dWeight += dLogitsᵀ·hidden
func blocks[T dtype.Float](t *tiled) *tensor.Tensor {
	bad := t.label()
	dev, width, half := t.hidden.Device(), t.hidden.Dim(1), t.dtype.Narrow()
	if t.wantHidden {
		t.dHidden = tensor.NewLike(t.hidden)
	}
	size, room := t.blockSize(width), t.most.bytes
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
	b := block[T]{}
	defer b.makeRoom(t, size, room)()
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

// makeRoom divides the classes into tiles and allocates room for those of blocks of size positions,
// together at most bytes, unless a tile of one class is larger. free gives it back.
func (b *block[T]) makeRoom(t *tiled, size, bytes int) (free func()) {
	size = max(size, 1)
	b.cuts = cuts(t.n, min(bytes/t.logitBytes(), t.most.tileBytes/t.wide.Size())/size)
	widest := 0
	for i := range len(b.cuts) - 1 {
		widest = max(widest, b.cuts[i+1]-b.cuts[i])
	}
	if t.dtype.Narrow() && (t.wantHidden || t.wantWeight) {
		b.grad = tensor.New(t.hidden.Device(), t.dtype, size*widest)
		bytes -= b.grad.Bytes()
	}
	b.kept = len(b.cuts) - 2
	for b.kept > 0 && (t.n-b.cuts[b.kept-1])*size*t.wide.Size() <= bytes {
		b.kept--
	}
	b.logits = tensor.New(t.hidden.Device(), t.wide, size*max(widest, t.n-b.cuts[max(b.kept, 0)]))
	return func() {
		b.logits.Free()
		if b.grad != nil {
			b.grad.Free()
		}
	}
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
	n := max(1, ints.DivUp(t.outer, most))
	return ints.DivUp(t.outer, n)
}

// classesOfRank returns how many classes a rank has if they are divided evenly, rounded
// up: the same number on all ranks that share positions.
func (t *tiled) classesOfRank() int {
	ranks := 1
	if t.classGroup != nil {
		ranks = t.classGroup.Size()
	}
	return ints.DivUp(t.classes, ranks)
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

// A tile is some of the local classes, lo to lo+n.
type tile struct{ number, lo, n int }

// tile returns a tile by its number.
func (b *block[T]) tile(i int) tile { return tile{i, b.cuts[i], b.cuts[i+1] - b.cuts[i]} }

// logitsOf returns the place of a tile's logits, a row for each position.
func (b *block[T]) logitsOf(i tile) *tensor.Tensor {
	at := 0
	if i.number > b.kept {
		at = (i.lo - b.cuts[b.kept]) * b.outer
	}
	return tensor.Narrow(b.logits, 0, at, b.outer*i.n).Reshape(b.outer, i.n)
}

// gradOf returns the place of the gradient of logits, of a tile.
func (b *block[T]) gradOf(logits *tensor.Tensor) *tensor.Tensor {
	if b.grad == nil {
		return logits
	}
	return tensor.Narrow(b.grad, 0, 0, logits.Numel()).Reshape(logits.Shape()...)
}

// weightsOf returns the class weights of a tile, nil if they are all 1.
func (b *block[T]) weightsOf(i tile) *tensor.Tensor {
	if b.weight == nil {
		return nil
	}
	return tensor.Narrow(b.weight, 0, i.lo, i.n)
}

// stats returns the statistics of hardStats over all tiles of the block.
func (b *block[T]) stats(weight *tensor.Tensor) (stats *tensor.Tensor) {
	sums, weights := b.o.LabelSmoothing > 0, 0.0 // of the classes so far
	for i := range len(b.cuts) - 1 {
		i := b.tile(i)
		logits := b.logitsOf(i)
		tensor.MatMulTo(logits, b.hidden, tensor.Narrow(weight, 0, i.lo, i.n), false, true, false)
		its := tensor.CrossEntropyStats(logits, b.y, b.lo+i.lo, b.weightsOf(i), sums)
		here := 0.0
		if sums {
			here = b.weightOf(b.lo+i.lo, i.n)
		}
		if stats == nil {
			stats = its
		} else {
			tensor.CrossEntropyJoin(stats, its, weights, here)
			its.Free()
		}
		weights += here
	}
	if stats == nil { // no classes
		stats = tensor.CrossEntropyStats(b.logits.Reshape(b.outer, 0), b.y, b.lo, b.weight, sums)
	}
	return smoothed[T](b.job, stats)
}

// gradients computes the gradients of the block; from the second block on it adds to
// dWeight.
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
	last := len(b.cuts) - 2
	for i := last; i >= 0; i-- {
		i := b.tile(i)
		logits, weight := b.logitsOf(i), tensor.Narrow(t.weight, 0, i.lo, i.n)
		if i.number < b.kept {
			tensor.MatMulTo(logits, b.hidden, weight, false, true, false)
		}
		grad := b.gradOf(logits)
		tensor.CrossEntropyGrad(grad, logits, b.y, b.lo+i.lo, shift, coef, b.weightsOf(i))
		if t.wantHidden {
			tensor.MatMulTo(sum, grad, weight, false, false, i.number < last)
		}
		if t.wantWeight {
			tensor.MatMulTo(tensor.Narrow(dWeight, 0, i.lo, i.n), grad, b.hidden, true, false, b.at > 0)
		}
	}
	if sum != dHidden {
		tensor.CastTo(dHidden, sum)
	}
}
