package gemm

import (
	"math/bits"
	"sync"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/pairwise"
)

// BatchPairwise is Batch whose sums over k are pairwise, in leaves of pairwise.Least elements or
// more: where package pairwise divides k, the product is the sum of the products of its halves,
// bit by bit. A leaf is added up as Batch does, but with fused multiply-adds on every machine: the bits are those of every
// machine too. beta·C is added to the whole sum.
func BatchPairwise[T Float](count int, transA, transB bool, m, n, k int, alpha T, a []T, lda, strideA int, b []T, ldb, strideB int, beta T,
	c []T, ldc, strideC int) {
	batches(bestFor[T]().pairs, count, transA, transB, m, n, k, alpha, a, lda, strideA, b, ldb,
		strideB, beta, c, ldc, strideC)
}

// BatchBF16Pairwise is BatchPairwise for A and B of bfloat16, and rounds as BatchBF16 does. Its bits are those of every machine of
// an architecture. On amd64 leaves of an even number of elements are added up as VDPBF16PS does, see BatchBF16: a CPU without it,
// or on which it is slow, makes these sums in float32, and has no use for AMX. Leaves of an odd number, and all of them on
// other architectures, have the sums of the float32 values.
func BatchBF16Pairwise[E float32 | dtype.BF16](count int, transA, transB bool, m, n, k int, alpha float32, a []dtype.BF16, lda, strideA int,
	b []dtype.BF16, ldb, strideB int, beta float32, c []E, ldc, strideC int) {
	kn := best32.pairs
	if pairwise.Leaf(k, pairwise.Least)%2 == 0 {
		kn = pairwiseHalves()
	}
	batchesBF16(kn, count, transA, transB, m, n, k, alpha, a, lda, strideA, b, ldb, strideB, beta, c, ldc,
		strideC)
}

// A tree is the part of C whose pairwise sums over k are made at once, as block after block comes: a
// leaf, two leaves, or a part of one. Each sum adds the nodes to itself that it completes, and is put
// in the place of the last of them. The nodes that wait for their pair are in rooms, tile after tile;
// the first is in C itself if nothing is to be added to it.
type tree[T Float] struct {
	k, leaf int
	beta    T
	rooms   []T // the last node first; after them a tile for the first of two leaves
	levels  int // rooms
	area    int // elements of a room
	tiles   int // tiles side by side

	// What a tile does with the block:
	half    int // elements of the first of two leaves, to which no room belongs; else 0
	from, n int // rooms whose nodes are added
	to      int // the room where the sum goes; -1: C
	old     T   // beta of what is there
}

// nodeArea is how many elements of C are summed pairwise at once, and nodeN how many of a row: a
// room stays in a cache.
const (
	nodeArea = 1 << 20
	nodeN    = 1024
)

// rooms are pooled: they hold nothing between calls.
var (
	rooms32 = sync.Pool{New: func() any { return new([]float32) }}
	rooms64 = sync.Pool{New: func() any { return new([]float64) }}
)

// roomsOf returns room for n elements and the pool to which it goes back.
func roomsOf[T Float](n int) (room *[]T, pool *sync.Pool) {
	pool = &rooms64
	if _, ok := any(room).(*[]float32); ok {
		pool = &rooms32
	}
	room = pool.Get().(*[]T)
	if cap(*room) < n {
		*room = make([]T, n)
	}
	*room = (*room)[:n]
	return room, pool
}

// multiplyPairwise is multiply with pairwise sums.
func multiplyPairwise[T Float](kn *kernel, m, n, k int, alpha T, a, b matrix[T], beta T, c []T, ldc int) {
	leaf := pairwise.Leaf(k, pairwise.Least)
	kn = kn.leaves
	if leaf == k {
		multiply(kn, m, n, k, alpha, a, b, beta, c, ldc)
		return
	}
	block := leaf
	if 2*leaf <= blockK*kn.depth() {
		block = 2 * leaf
	}
	t := tree[T]{k: k, leaf: leaf, beta: beta, levels: bits.Len(uint(k/block)) - 1}
	if leaf > blockK {
		t.levels++ // for the parts of a leaf
	}
	stepN, nodes := n, 1
	if t.levels > 0 {
		stepN = min(n, nodeN)
		nodes = ints.DivUp(m*stepN, nodeArea)
	}
	stepM := ints.RoundUp(ints.DivUp(m, nodes), kn.rows)
	t.tiles = ints.DivUp(stepN, kn.cols)
	t.area = stepM * t.tiles * kn.cols
	room, pool := roomsOf[T](t.levels*t.area + kn.rows*kn.cols)
	defer pool.Put(room)
	t.rooms = *room
	for j := 0; j < n; j += stepN {
		for i := 0; i < m; i += stepM {
			for p, size := 0, 0; p < k; p += size {
				if size = block; leaf > blockK {
					size = min(blockK, leaf-p%leaf)
				}
				t.plan(p, size)
				blocked(kn, min(stepM, m-i), min(stepN, n-j), size, alpha, a.from(i, p), b.from(p, j), beta, operand(false, c[i*ldc+j:], ldc), &t)
			}
		}
	}
}

// plan says what a tile does with the block of size elements from p on.
func (t *tree[T]) plan(p, size int) {
	t.half, t.n, t.old = 0, 0, 0
	end, begun := p+size, p%t.leaf
	leaf := (end - 1) / t.leaf
	waiting := bits.OnesCount(uint(leaf)) // nodes, of which the leaf completes some
	if end%t.leaf == 0 {
		t.n = bits.TrailingZeros(^uint(leaf))
	}
	switch {
	case size > t.leaf:
		t.half = t.leaf
		waiting, t.n = waiting-1, t.n-1
	case begun > 0: // the first part of the leaf waits too
		waiting, t.n = waiting+1, t.n+1
	}
	t.from, t.to = t.levels-waiting, t.levels-1-(waiting-t.n)
	switch {
	case t.beta == 0 && waiting == t.n: // the first node is in C
		if t.to = -1; t.n > 0 {
			t.n, t.old = t.n-1, 1
		}
	case end == t.k:
		t.to, t.old = -1, t.beta
	}
}

// tile is the function tile for the tile of C at row and col of the part of C.
func (t *tree[T]) tile(kn *kernel, rows, cols, k int, a []T, rsa, csa int, b []T, rsb int, c []T, ldc int, alpha T, row, col int) {
	at := row*t.tiles*kn.cols + col*kn.rows
	more := parts[T]{ld: kn.cols, step: t.area, n: t.n, half: kn.steps(t.half)}
	if t.n > 0 {
		more.first = t.rooms[t.from*t.area+at:]
	}
	switch {
	case t.half > 0:
		more.first, more.next, more.n = t.rooms[t.levels*t.area:], more.first, t.n+1
	case t.n > 1:
		more.next = more.first[t.area:]
	}
	if t.to >= 0 {
		c, ldc = t.rooms[t.to*t.area+at:], kn.cols
	}
	tile(kn, rows, cols, k, a, rsa, csa, b, rsb, c, ldc, alpha, t.old, &more)
}
