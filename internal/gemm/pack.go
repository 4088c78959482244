package gemm

import "github.com/gorun-spmd/gorun/internal/simd"

// pack writes x [k, n] to dst in panels of width columns: element (p, j) goes to
// dst[j/width*width*k + p*width + j%width].
//
// Where the rows of x are rows in memory it takes some of them at a time through
// all the panels: few long runs, which the processor fetches ahead.
func pack[T Float](dst []T, x matrix[T], k, n, width int) {
	if x.col != 1 {
		for j := 0; j < n; j += width {
			simd.Transpose(dst[j*k:], width, x.data[j*x.col:], x.col, min(width, n-j), k)
		}
		return
	}
	const rows = 16
	for p := 0; p < k; p += rows {
		for j := 0; j < n; j += width {
			simd.CopyRows(dst[j*k+p*width:], width, x.data[p*x.row+j:], x.row, min(rows, k-p), min(width, n-j))
		}
	}
}
