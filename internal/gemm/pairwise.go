package gemm

import (
	"sync"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/pairwise"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// BatchPairwise is Batch whose sums over k are pairwise, in leaves of pairwise.Least elements or
// more: where package pairwise divides k, the product is the sum of the products of its halves,
// bit by bit. A leaf is added up as Batch does. beta·C is added to the whole sum.
func BatchPairwise[T Float](count int, transA, transB bool, m, n, k int, alpha T, a []T, lda, strideA int, b []T, ldb, strideB int, beta T,
	c []T, ldc, strideC int) {
	batches(kernelFor(simd.Best(), int(unsafe.Sizeof(alpha))).pairs(), count, transA, transB, m, n, k, alpha, a, lda, strideA, b, ldb,
		strideB, beta, c, ldc, strideC)
}

// BatchBF16Pairwise is BatchPairwise for A and B of bfloat16, and rounds as BatchBF16 does. It
// has no use for AVX-512 BF16, so its bits are those of every CPU with AVX2 or NEON.
func BatchBF16Pairwise[E float32 | dtype.BF16](count int, transA, transB bool, m, n, k int, alpha float32, a []dtype.BF16, lda, strideA int,
	b []dtype.BF16, ldb, strideB int, beta float32, c []E, ldc, strideC int) {
	batchesBF16(kernelFor(simd.Best(), 4).pairs(), count, transA, transB, m, n, k, alpha, a, lda, strideA, b, ldb, strideB, beta, c, ldc,
		strideC)
}

// pairs returns the kernel for pairwise sums.
func (kn kernel) pairs() kernel {
	kn.pairwise = true
	return kn
}

// A node is the part of C whose sum over k is made at once, and what it is made of.
type node[T Float] struct {
	kernel     // of leaves within a block
	block  int // elements of k that tiles add up, at most blockK but for a leaf
	m, n   int
	alpha  T
	a, b   matrix[T]
	rooms  [][]T // for right halves, one for each level
}

// Parts of C that are summed pairwise. A room of one stays in the second cache.
const (
	nodeM = 2 * blockM
	nodeN = blockN
)

// rooms are pooled: they hold nothing between calls.
var (
	rooms32 = sync.Pool{New: func() any { return new([nodeM * nodeN]float32) }}
	rooms64 = sync.Pool{New: func() any { return new([nodeM * nodeN]float64) }}
)

// roomOf returns nodeM·nodeN elements and the pool to which they go back.
func roomOf[T Float]() (room []T, back func()) {
	var zero T
	if unsafe.Sizeof(zero) == 4 {
		p := rooms32.Get().(*[nodeM * nodeN]float32)
		return any(p[:]).([]T), func() { rooms32.Put(p) }
	}
	p := rooms64.Get().(*[nodeM * nodeN]float64)
	return any(p[:]).([]T), func() { rooms64.Put(p) }
}

// multiplyPairwise is multiply with pairwise sums.
func multiplyPairwise[T Float](kn kernel, m, n, k int, alpha T, a, b matrix[T], beta T, c []T, ldc int) {
	leaf := pairwise.Leaf(k, pairwise.Least)
	kn.pairwise = false
	if leaf == k {
		multiply(kn, m, n, k, alpha, a, b, beta, c, ldc)
		return
	}
	t := node[T]{kernel: kn, block: k, alpha: alpha}
	for t.block > blockK && t.block > leaf {
		t.block /= 2
	}
	if t.block > leaf {
		t.leaf = leaf
	}
	for size := 2 * k; size > t.block; size /= 2 {
		room, back := roomOf[T]()
		defer back()
		t.rooms = append(t.rooms, room)
	}
	for j := 0; j < n; j += nodeN {
		for i := 0; i < m; i += nodeM {
			t.m, t.n, t.a, t.b = min(nodeM, m-i), min(nodeN, n-j), a.from(i, 0), b.from(0, j)
			t.add(0, k, beta, c[i*ldc+j:], ldc, t.rooms)
		}
	}
}

// add does C = alpha·A·B + beta·C for the size elements of k from p on.
func (t *node[T]) add(p, size int, beta T, c []T, ldc int, rooms [][]T) {
	switch {
	case size == t.block && (beta == 0 || size <= blockK): // a longer leaf is added to C in parts
		blocked(t.kernel, t.m, t.n, size, t.alpha, t.a.from(0, p), t.b.from(p, 0), beta, c, ldc)
		return
	case beta != 0:
		t.add(p, size, 0, rooms[0], t.n, rooms[1:])
		addRows(t.m, t.n, beta, c, ldc, rooms[0])
		return
	}
	half := size / 2
	t.add(p, half, 0, c, ldc, rooms)
	t.add(p+half, half, 1, c, ldc, rooms)
}

// addRows does C = beta·C + sums, whose rows follow each other.
func addRows[T Float](m, n int, beta T, c []T, ldc int, sums []T) {
	if beta != 1 {
		scale(m, n, beta, c, ldc)
	}
	for i := range m {
		simd.AddTo(c[i*ldc:][:n], sums[i*n:][:n])
	}
}

// tileRoom is how many elements a tile has at most.
const tileRoom = 14 * 32

// tilePairwise is tile for two leaves, or four: a block has no more.
func tilePairwise[T Float](kn kernel, rows, cols, k int, a []T, rsa, csa int, b []T, rsb int, c []T, ldc int, alpha, beta T,
	room *[2 * tileRoom]T) {
	pair := func(p int, dst []T, ld int) {
		tile(kn, rows, cols, kn.leaf, a[p*csa:], rsa, csa, b[p*rsb:], rsb, dst, ld, alpha, 0)
		p += kn.leaf
		tile(kn, rows, cols, kn.leaf, a[p*csa:], rsa, csa, b[p*rsb:], rsb, dst, ld, alpha, 1)
	}
	left, ld := c, ldc
	if beta != 0 {
		left, ld = room[:tileRoom], cols
	}
	pair(0, left, ld)
	if k > 2*kn.leaf {
		pair(2*kn.leaf, room[tileRoom:], cols)
		addRows(rows, cols, 1, left, ld, room[tileRoom:])
	}
	if beta != 0 {
		addRows(rows, cols, beta, c, ldc, left)
	}
}
