package simd

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
)

// ZipRows puts the elements of each two rows next to each other:
//
//	dst[p*dstStep+2*j+h] = src[(2*p+h)*srcStep+j]    2*p+h < rows, h < 2, j < n
//
// and zeros in place of the second row of the last pair if the number of rows is odd. dst
// and src must not overlap.
func ZipRows(dst []dtype.BF16, dstStep int, src []dtype.BF16, srcStep, rows, n int) {
	if rows == 0 || n == 0 {
		return
	}
	checkRows("ZipRows", "dst", len(dst), dstStep, (rows+1)/2, 2*n)
	checkRows("ZipRows", "src", len(src), srcStep, rows, n)
	ordinary.zipRows(dst, dstStep, src, srcStep, rows, n)
}

func (m Mode) zipRows(dst []dtype.BF16, dstStep int, src []dtype.BF16, srcStep, rows, n int) {
	pairs := rows / 2
	if m.has(zipRowsKernel) && pairs > 0 {
		const most = 32 // elements of a row in one call
		const each = callBytes / (8 * most)
		d, s := bytes(dst), bytes(src)
		for p := 0; p < pairs; p += each {
			for j := 0; j < n; j += most {
				zipRowsVec(&d[2*(p*dstStep+2*j)], 2*dstStep, &s[2*(2*p*srcStep+j)], 2*srcStep, min(most, n-j), min(each, pairs-p))
			}
		}
	} else {
		for p := range pairs {
			to, low, high := dst[p*dstStep:][:2*n], src[2*p*srcStep:][:n], src[(2*p+1)*srcStep:][:n]
			for j, v := range low {
				to[2*j], to[2*j+1] = v, high[j]
			}
		}
	}
	if rows%2 == 1 {
		to := dst[pairs*dstStep:][:2*n]
		for j, v := range src[(rows-1)*srcStep:][:n] {
			to[2*j], to[2*j+1] = v, 0
		}
	}
}

// TransposePairs turns the rows of a matrix of pairs into columns:
//
//	dst[p*dstStep+2*i+h] = src[i*srcStep+2*p+h]    i < rows, 2*p+h < cols, h < 2
//
// and puts zeros second into the last pairs if the number of columns is odd. dst and src
// must not overlap.
func TransposePairs(dst []dtype.BF16, dstStep int, src []dtype.BF16, srcStep, rows, cols int) {
	if rows == 0 || cols == 0 {
		return
	}
	checkRows("TransposePairs", "dst", len(dst), dstStep, (cols+1)/2, 2*rows)
	checkRows("TransposePairs", "src", len(src), srcStep, rows, cols)
	ordinary.transposePairs(dst, dstStep, src, srcStep, rows, cols)
}

func (m Mode) transposePairs(dst []dtype.BF16, dstStep int, src []dtype.BF16, srcStep, rows, cols int) {
	pairs := cols / 2
	if m.has(transpose32Kernel) {
		lanes := m.bytes() / 4
		each := callBytes / m.bytes()
		d, s := bytes(dst), bytes(src)
		for i := 0; i < rows; i += lanes {
			for p := 0; p < pairs; p += each {
				transpose32Vec(m.wide(), &d[2*(p*dstStep+2*i)], 2*dstStep, &s[2*(i*srcStep+2*p)], 2*srcStep, min(lanes, rows-i), min(each, pairs-p))
			}
		}
	} else {
		for i := range rows {
			for p := range pairs {
				copy(dst[p*dstStep+2*i:][:2], src[i*srcStep+2*p:][:2])
			}
		}
	}
	if cols%2 == 1 {
		to := dst[pairs*dstStep:][:2*rows]
		for i := range rows {
			to[2*i], to[2*i+1] = src[i*srcStep+cols-1], 0
		}
	}
}

// FromPairs does low[i] = src[2*i] and high[i] = src[2*i+1], exactly. The lengths of low and high are half of src's.
func FromPairs(low, high []float32, src []dtype.BF16) {
	same("FromPairs", len(low), len(high), len(src)/2)
	ordinary.fromPairs(low, high, src)
}

func (m Mode) fromPairs(low, high []float32, src []dtype.BF16) {
	if m.has(fromPairsKernel) {
		for i := 0; i < len(low); i += chunk {
			fromPairsVec(m.wide(), &low[i], &high[i], (*float32)(unsafe.Pointer(&src[2*i])), min(chunk, len(low)-i))
		}
		return
	}
	for i := range low {
		low[i], high[i] = src[2*i].Float32(), src[2*i+1].Float32()
	}
}

// FromRowsBF16 widens rows of n elements:
//
//	dst[i*dstStep+j] = src[i*srcStep+j]    i < rows, j < n
//
// The rows of dst must not overlap.
func FromRowsBF16(dst []float32, dstStep int, src []dtype.BF16, srcStep, rows, n int) {
	if rows == 0 || n == 0 {
		return
	}
	checkRows("FromRowsBF16", "dst", len(dst), dstStep, rows, n)
	checkRows("FromRowsBF16", "src", len(src), srcStep, rows, n)
	ordinary.fromRowsBF16(dst, dstStep, src, srcStep, rows, n)
}

func (m Mode) fromRowsBF16(dst []float32, dstStep int, src []dtype.BF16, srcStep, rows, n int) {
	const most = 32 // elements of a row in one call
	if !m.has(fromRowsBF16Kernel) || n > most {
		for i := range rows {
			m.fromBF16(dst[i*dstStep:][:n], src[i*srcStep:][:n])
		}
		return
	}
	const each = callBytes / (8 * most)
	d, s := bytes(dst), bytes(src)
	for i := 0; i < rows && n > 0; i += each {
		fromRowsBF16Vec(&d[4*i*dstStep], 4*dstStep, &s[2*i*srcStep], 2*srcStep, n, min(each, rows-i))
	}
}
