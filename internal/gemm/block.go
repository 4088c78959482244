package gemm

import "sync"

// The blocks of the packed algorithm, in elements. A panel of B, blockK by a
// tile's columns, stays in the first cache while the tiles of a block of A pass
// over it; the block of A, blockM by blockK, stays in the second.
//
// blockK also fixes the order of each sum, so it is the same for every
// instruction set.
const (
	blockK = 256
	blockM = 336 // a multiple of every kernel's rows but the plain one's
	blockN = 2048
)

// A workspace holds the packed blocks of one product.
type workspace[T Float] struct {
	a [blockM * blockK]T
	b [blockN * blockK]T
}

// Workspaces are pooled: they hold nothing between calls.
var pool32 = sync.Pool{New: func() any { return new(workspace[float32]) }}
var pool64 = sync.Pool{New: func() any { return new(workspace[float64]) }}

// poolOf returns the pool of an element type.
func poolOf[T Float]() *sync.Pool {
	var zero T
	if _, ok := any(zero).(float32); ok {
		return &pool32
	}
	return &pool64
}

// blocked multiplies by packing blocks of A and B so that the tiles read both in
// order, as in Goto and van de Geijn, "Anatomy of high-performance matrix
// multiplication", 2008.
func blocked[T Float](kn kernel, m, n, k int, alpha T, a, b matrix[T], beta T, c []T, ldc int) {
	pool := poolOf[T]()
	ws := pool.Get().(*workspace[T])
	defer pool.Put(ws)
	for j0 := 0; j0 < n; j0 += blockN {
		nb := min(blockN, n-j0)
		for p0 := 0; p0 < k; p0 += blockK {
			kb := min(blockK, k-p0)
			packB(kn, ws.b[:], b.from(p0, j0), kb, nb)
			beta := beta
			if p0 > 0 {
				beta = 1
			}
			for i0 := 0; i0 < m; i0 += blockM {
				mb := min(blockM, m-i0)
				packA(kn, ws.a[:], a.from(i0, p0), mb, kb)
				macro(kn, mb, nb, kb, alpha, ws.a[:], ws.b[:], beta, c[i0*ldc+j0:], ldc)
			}
		}
	}
}

// packB writes b [k, n] as panels [k, kn.cols], one after the other.
func packB[T Float](kn kernel, dst []T, b matrix[T], k, n int) {
	for j := 0; j < n; j += kn.cols {
		pack(kn, dst[j*k:], kn.cols, b.from(0, j), k, min(kn.cols, n-j))
	}
}

// packA writes a [m, k] as panels [k, kn.rows], one after the other; the last
// panel has the rows that are left, without gaps.
func packA[T Float](kn kernel, dst []T, a matrix[T], m, k int) {
	for i := 0; i < m; i += kn.rows {
		rows := min(kn.rows, m-i)
		pack(kn, dst[i*k:], rows, a.from(i, 0).transposed(), k, rows)
	}
}

// macro multiplies a packed block of A with a packed block of B.
func macro[T Float](kn kernel, m, n, k int, alpha T, a, b []T, beta T, c []T, ldc int) {
	for j := 0; j < n; j += kn.cols {
		cols := min(kn.cols, n-j)
		for i := 0; i < m; i += kn.rows {
			rows := min(kn.rows, m-i)
			tile(kn, rows, cols, k, a[i*k:], 1, rows, b[j*k:], kn.cols, c[i*ldc+j:], ldc, alpha, beta)
		}
	}
}
