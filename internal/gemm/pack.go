package gemm

import "github.com/gorun-spmd/gorun/internal/simd"

// pack writes x [k, n] to dst in panels of width columns: element (p, j) goes to
// dst[j/width*width*k + p*width + j%width]. room is for wideRows·blockN elements.
//
// Where the rows of x are rows in memory it takes some of them at a time through
// all the panels: few long runs, which the processor fetches ahead.
func pack[T Float](dst []T, x matrix[T], k, n, width int, room []T) {
	if x.col != 1 {
		for j := 0; j < n; j += width {
			cols := min(width, n-j)
			from := x.from(0, j).widened(room, k, cols)
			simd.Transpose(dst[j*k:], width, from.data, from.col, cols, k)
		}
		return
	}
	const rows = 16
	step := rows
	if x.half != nil {
		step = wideRows
	}
	for p := 0; p < k; p += step {
		few := min(step, k-p)
		from := x.from(p, 0).widened(room, few, n)
		for j := 0; j < n; j += width {
			simd.CopyRows(dst[j*k+p*width:], width, from.data[j:], from.row, few, min(width, n-j))
		}
	}
}
