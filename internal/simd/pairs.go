package simd

import "github.com/gorun-spmd/gorun/internal/dtype"

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

// TransposeBF16 turns the rows of a matrix into columns and widens them:
//
//	dst[j*dstStep+i] = src[i*srcStep+j]    i < rows, j < cols
//
// The columns of dst must not overlap.
func TransposeBF16(dst []float32, dstStep int, src []dtype.BF16, srcStep, rows, cols int) {
	if rows == 0 || cols == 0 {
		return
	}
	checkRows("TransposeBF16", "dst", len(dst), dstStep, cols, rows)
	checkRows("TransposeBF16", "src", len(src), srcStep, rows, cols)
	ordinary.transposeBF16(dst, dstStep, src, srcStep, rows, cols)
}

func (m Mode) transposeBF16(dst []float32, dstStep int, src []dtype.BF16, srcStep, rows, cols int) {
	turned := 0 // columns
	if m.has(transposeBF16Kernel) {
		turned = cols &^ 1
		lanes := m.bytes() / 4
		each := callBytes / m.bytes()
		d, s := bytes(dst), bytes(src)
		for i := 0; i < rows; i += lanes {
			for j := 0; j < turned; j += each {
				transposeBF16Vec(m.wide(), &d[4*(j*dstStep+i)], 4*dstStep, &s[2*(i*srcStep+j)], 2*srcStep, min(lanes, rows-i),
					min(each, turned-j)/2)
			}
		}
	}
	for i := range rows {
		for j := turned; j < cols; j++ {
			dst[j*dstStep+i] = src[i*srcStep+j].Float32()
		}
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
	if !m.has(fromRowsBF16Kernel) {
		for i := range rows {
			m.fromBF16(dst[i*dstStep:][:n], src[i*srcStep:][:n])
		}
		return
	}
	each, ahead := max(1, chunk/max(n, 1)), max(1, soon/(2*max(n, 1)))
	d, s := bytes(dst), bytes(src)
	for i := 0; i < rows; i += each {
		for j := 0; j < n; j += chunk {
			fromRowsBF16Vec(&d[4*(i*dstStep+j)], 4*dstStep, &s[2*(i*srcStep+j)], 2*srcStep, 2*ahead*srcStep, min(chunk, n-j), min(each, rows-i))
		}
	}
}

// ToRowsBF16 rounds rows of n elements as ToBF16 does:
//
//	dst[i*dstStep+j] = src[i*srcStep+j]    i < rows, j < n
//
// The rows of dst must not overlap.
func ToRowsBF16(dst []dtype.BF16, dstStep int, src []float32, srcStep, rows, n int) {
	if rows == 0 || n == 0 {
		return
	}
	checkRows("ToRowsBF16", "dst", len(dst), dstStep, rows, n)
	checkRows("ToRowsBF16", "src", len(src), srcStep, rows, n)
	ordinary.toRowsBF16(dst, dstStep, src, srcStep, rows, n)
}

func (m Mode) toRowsBF16(dst []dtype.BF16, dstStep int, src []float32, srcStep, rows, n int) {
	if !m.has(toRowsBF16Kernel) {
		for i := range rows {
			m.toBF16(dst[i*dstStep:][:n], src[i*srcStep:][:n])
		}
		return
	}
	const most = 32 // elements of a row in one call
	const each = callBytes / (4 * most)
	d, s := bytes(dst), bytes(src)
	for i := 0; i < rows; i += each {
		for j := 0; j < n; j += most {
			toRowsBF16Vec(&d[2*(i*dstStep+j)], 2*dstStep, &s[4*(i*srcStep+j)], 4*srcStep, min(most, n-j), min(each, rows-i))
		}
	}
}
