package gemm

// A matrix is op(X) as it lies in memory: element (i, j) is data[i*row+j*col].
// One of the strides is 1.
type matrix[T Float] struct {
	data     []T
	row, col int
}

// operand returns op(X).
func operand[T Float](trans bool, data []T, ld int) matrix[T] {
	if trans {
		return matrix[T]{data, 1, ld}
	}
	return matrix[T]{data, ld, 1}
}

// from returns the part of the matrix that starts at element (i, j).
func (x matrix[T]) from(i, j int) matrix[T] {
	return matrix[T]{x.data[i*x.row+j*x.col:], x.row, x.col}
}

// transposed returns the transposed matrix.
func (x matrix[T]) transposed() matrix[T] { return matrix[T]{x.data, x.col, x.row} }
