package gemm

// packGo writes x [rows, cols] to dst with its rows stride elements apart.
func packGo[T Float](dst []T, stride int, x matrix[T], rows, cols int) {
	if x.col == 1 {
		for i := range rows {
			copy(dst[i*stride:][:cols], x.data[i*x.row:])
		}
		return
	}
	for j := range cols {
		for i, v := range x.data[j*x.col:][:rows] {
			dst[i*stride+j] = v
		}
	}
}
