package gemm

import (
	"sync"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// The blocks of a product on tiles, in elements. A block of A, tilesM by tilesK, and a part of that of B, tilesPart in all, stay in the
// second cache while the rows of the one are multiplied with the columns of the other. tilesK also fixes the order of a sum that is
// scaled.
const (
	tilesM    = 256
	tilesN    = 1024
	tilesK    = 2048
	tilesPart = 1 << 18
)

// tileSide is the rows and the columns of C that the tiles of one step have.
const tileSide = 32

// A tileSpace holds the packed blocks of one product on tiles: a pair of bfloat16 takes the place of a float32.
type tileSpace struct {
	a    [tilesM * tilesK / 2]float32
	b    [tilesN * tilesK / 2]float32
	room [tileSide * tileSide]float32
}

// tileSpaces is a pool of workspaces, which hold nothing between calls.
var tileSpaces = sync.Pool{New: func() any { return new(tileSpace) }}

// A tilesFunc does C = alpha·A·B + beta·C for rows ≤ tileSide of A and a block of B with cols columns; if alpha and beta are 1, the sums
// begin with C. A C of bfloat16 is only written: beta is 0. k counts pairs of bfloat16 and is a multiple of tilePairs. B is packed by
// packPairs; room is for tileSide by tileSide sums.
type tilesFunc func(rows, cols, k int, a strip, b []float32, c matrix[float32], alpha, beta float32, room []float32)

// A strip is up to tileSide rows of A as tiles read them, tileSide/2 at once: element (i, p) is
//
//	data[i*row + p/(2*tilePairs)*block + p%(2*tilePairs)]
type strip struct {
	data       []dtype.BF16
	row, block int
}

// tiled is blocked for a kernel with tiles. It packs B, and of A what tiles cannot read where it lies: columns, ends of rows, and the last
// rows; or what they read slowly, rows that compete for the same cache lines. For a C of bfloat16, all of k has to be one block and beta 0.
func tiled(kn *kernel, m, n, k int, alpha float32, a, b matrix[float32], beta float32, c matrix[float32]) {
	ws := tileSpaces.Get().(*tileSpace)
	defer tileSpaces.Put(ws)
	stepN := tilesN
	if m <= 2*tileSide { // the columns are read once or twice: while they are in the first cache
		stepN = 4 * tileSide
	}
	mPacked := ints.RoundUp(m, tileSide)
	packOnce := n > stepN && mPacked*kn.steps(k) <= len(ws.a) // all of A fits
	whole := a.col == 1 && k%(2*tilePairs) == 0 && a.row*2%page != 0
	for j := 0; j < n; j += stepN {
		nb := min(stepN, n-j)
		for p := 0; p < k; p += tilesK {
			kb := min(tilesK, k-p)
			steps := kn.steps(kb)
			packPairs(kn, ws.b[:], b.from(p, j), kb, nb, tileSide)
			part := max(1, tilesPart/(2*steps*tileSide)) * tileSide
			beta := beta
			if p > 0 {
				beta = 1
			}
			for i := 0; i < m; i += tilesM {
				mb, packed := min(tilesM, m-i), ws.a[:]
				if packOnce {
					packed = ws.a[kn.steps(p)*mPacked+i*steps:]
				}
				inPlace := 0 // rows
				if whole {
					inPlace = mb / tileSide * tileSide
				}
				if inPlace < mb && (!packOnce || j == 0) {
					packStrips(kn, packed[inPlace*steps:], a.from(i+inPlace, p), mb-inPlace, kb, ws.room[:])
				}
				for q := 0; q < nb; q += part {
					for r := 0; r < mb; r += tileSide {
						s := strip{halvesOf(packed[r*steps:]), 2 * tilePairs, 2 * tilePairs * tileSide}
						if r < inPlace {
							s = strip{a.from(i+r, p).half, a.row, 2 * tilePairs}
						}
						kn.tiles(min(tileSide, mb-r), min(part, nb-q), steps, s, ws.b[q*steps:], c.from(i+r, j+q), alpha, beta, ws.room[:])
					}
				}
			}
		}
	}
}
