package gemm

import "github.com/gorun-spmd/gorun/internal/dtype"

// A matrix is op(X) in the memory of X: element (i, j) is data[i*row+j*col]. One of the
// strides is 1.
type matrix[T Float] struct {
	data     []T
	half     []dtype.BF16 // if not nil, the elements, in place of data; T is float32
	row, col int
}

// operand returns op(X).
func operand[T Float](trans bool, data []T, ld int) matrix[T] {
	if trans {
		return matrix[T]{data, nil, 1, ld}
	}
	return matrix[T]{data, nil, ld, 1}
}

// half is operand for elements of bfloat16.
func half(trans bool, data []dtype.BF16, ld int) matrix[float32] {
	if trans {
		return matrix[float32]{nil, data, 1, ld}
	}
	return matrix[float32]{nil, data, ld, 1}
}

// from returns the part of the matrix that starts at element (i, j).
func (x matrix[T]) from(i, j int) matrix[T] { return x.after(i*x.row + j*x.col) }

// after returns the matrix that starts n elements of memory later.
func (x matrix[T]) after(n int) matrix[T] {
	if x.half != nil {
		return matrix[T]{nil, x.half[n:], x.row, x.col}
	}
	return matrix[T]{x.data[n:], nil, x.row, x.col}
}

// transposed returns the transposed matrix.
func (x matrix[T]) transposed() matrix[T] { return matrix[T]{x.data, x.half, x.col, x.row} }

// singles returns x; T is float32.
func singles[T Float](x matrix[T]) matrix[float32] {
	return matrix[float32]{floats(x.data), x.half, x.row, x.col}
}
