package simd

import (
	"fmt"
	"unsafe"
)

// callBytes is about how much one assembly call moves.
const callBytes = 4 * chunk

// CopyRows copies rows of n elements whose starts lie dstStep and srcStep
// elements apart:
//
//	dst[i*dstStep+j] = src[i*srcStep+j]    i < rows, j < n
//
// dst and src must not overlap, nor the rows of dst.
func CopyRows[T Elem](dst []T, dstStep int, src []T, srcStep, rows, n int) {
	if rows == 0 || n == 0 {
		return
	}
	checkRows("CopyRows", "dst", len(dst), dstStep, rows, n)
	checkRows("CopyRows", "src", len(src), srcStep, rows, n)
	size := int(unsafe.Sizeof(dst[0]))
	m := Moving(2 * rows * n * size)
	ahead := max(1, soon/(n*size))
	m.copyRows(bytes(dst), dstStep*size, ahead*dstStep*size, bytes(src), srcStep*size, ahead*srcStep*size, rows, n*size)
	m.Done()
}

// CopyPanel is CopyRows for narrow parts of longer rows of src, one part after another: it prefetches along the rows.
func CopyPanel[T Elem](dst []T, dstStep int, src []T, srcStep, rows, n int) {
	if rows == 0 || n == 0 {
		return
	}
	checkRows("CopyPanel", "dst", len(dst), dstStep, rows, n)
	checkRows("CopyPanel", "src", len(src), srcStep, rows, n)
	size := int(unsafe.Sizeof(dst[0]))
	ordinary.copyRows(bytes(dst), dstStep*size, 0, bytes(src), srcStep*size, alongRow, rows, n*size)
}

// checkRows panics unless rows of n elements, step apart, are within length.
func checkRows(op, name string, length, step, rows, n int) {
	if step < 0 || rows < 0 || n < 0 || (rows-1)*step+n > length {
		panic(fmt.Sprintf("simd: %s: %d rows of %d elements, %d apart, are not within a %s of %d", op, rows, n, step, name, length))
	}
}

// soon is how many bytes ahead rows are prefetched, alongRow how many bytes ahead in a row.
const (
	soon     = 2 << 10
	alongRow = 192
)

// copyRows is CopyRows in bytes. It prefetches dst and src as many bytes ahead as dstAhead and srcAhead say.
func (m Mode) copyRows(dst []byte, dstStep, dstAhead int, src []byte, srcStep, srcAhead, rows, n int) {
	const long = 1 << 10 // a call a row costs little then
	if !m.has(copyRowsKernel) || n >= long || !m.wide() && n%32 != 0 {
		for i := range rows {
			if d, s := dst[i*dstStep:][:n], src[i*srcStep:][:n]; m.NonTemporal {
				m.copy(d, s, copyKernel, copyVec)
			} else {
				copy(d, s)
			}
		}
		return
	}
	each := callBytes / n
	for i := 0; i < rows; i += each {
		copyRowsVec(m.wide(), &dst[i*dstStep], dstStep, dstAhead, &src[i*srcStep], srcStep, srcAhead, n, min(each, rows-i))
	}
}

// Transpose turns the rows of a matrix into columns:
//
//	dst[j*dstStep+i] = src[i*srcStep+j]    i < rows, j < cols
//
// dst and src must not overlap, nor the columns of dst.
func Transpose[T Elem](dst []T, dstStep int, src []T, srcStep, rows, cols int) {
	if rows == 0 || cols == 0 {
		return
	}
	checkRows("Transpose", "dst", len(dst), dstStep, cols, rows)
	checkRows("Transpose", "src", len(src), srcStep, rows, cols)
	transpose(ordinary, dst, dstStep, src, srcStep, rows, cols)
}

// transpose works on squares of the matrix whose rows and columns lie in few enough pages
// for the processor's TLB.
func transpose[T Elem](m Mode, dst []T, dstStep int, src []T, srcStep, rows, cols int) {
	const square = 256
	for i := 0; i < rows; i += square {
		for j := 0; j < cols; j += square {
			r, c := min(square, rows-i), min(square, cols-j)
			d, s := dst[j*dstStep+i:], src[i*srcStep+j:]
			if size := int(unsafe.Sizeof(dst[0])); m.has(transpose32Kernel) && size >= 4 {
				m.transposeVec(bytes(d), dstStep*size, bytes(s), srcStep*size, r, c, size)
			} else {
				transposeGo(d, dstStep, s, srcStep, r, c)
			}
		}
	}
}

// transposeVec transposes one square of elements of 4 or 8 bytes; steps are in bytes.
func (m Mode) transposeVec(dst []byte, dstStep int, src []byte, srcStep, rows, cols, size int) {
	lanes := m.bytes() / size
	for i := 0; i < rows; i += lanes {
		d, s, n := &dst[i*size], &src[i*srcStep], min(lanes, rows-i)
		if size == 4 {
			transpose32Vec(m.wide(), d, dstStep, s, srcStep, n, cols)
		} else {
			transpose64Vec(m.wide(), d, dstStep, s, srcStep, n, cols)
		}
	}
}

// transposeGo transposes one square, a tile of 16 by 16 at a time through a buffer in the
// first cache, so that each cache line is read and written once.
func transposeGo[T Elem](dst []T, dstStep int, src []T, srcStep, rows, cols int) {
	const tile = 16
	var buf [tile][tile]T
	for i := 0; i < rows; i += tile {
		for j := 0; j < cols; j += tile {
			if i+tile > rows || j+tile > cols {
				for k := j; k < min(j+tile, cols); k++ {
					for m := i; m < min(i+tile, rows); m++ {
						dst[k*dstStep+m] = src[m*srcStep+k]
					}
				}
				continue
			}
			for m := range tile {
				for k, v := range (*[tile]T)(src[(i+m)*srcStep+j:]) {
					buf[k][m] = v
				}
			}
			for k := range tile {
				*(*[tile]T)(dst[(j+k)*dstStep+i:]) = buf[k]
			}
		}
	}
}
