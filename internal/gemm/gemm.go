package gemm

import (
	"fmt"

	"github.com/gorun-spmd/gorun/internal/dtype"
)

// Float are the element types of a matrix.
type Float interface{ float32 | float64 }

// Gemm does C = alpha·op(A)·op(B) + beta·C, where op(X) is X, or its transpose
// where transX is set.
//
//	op(A) [m, k]   op(B) [k, n]   C [m, n]
//
// A matrix is a row-major slice whose rows start ld elements apart: element
// (i, j) of A as it lies in memory is a[i*lda+j]. C must not overlap A or B.
// With beta 0, C is only written, so what it held (NaN even) does not matter;
// with alpha 0 or k 0, A and B are not read.
//
// Each element is one sum over k, from the first to the last, in blocks of
// blockK, in float32 or float64 with fused multiply-adds. So its bits depend on
// its row of op(A) and its column of op(B) alone: not on m and n, the strides of the
// operands, the number of threads, or whether the processor has AVX2, AVX-512 or NEON. A
// product cut into parts by rows or columns has the bits of the whole product. (Elsewhere plain
// Go adds in the same order; the compiler decides whether multiply-adds are fused.)
//
// A large product is shared among at most runtime.GOMAXPROCS(0) goroutines.
// Gemm panics if a slice is too short for its shape: a bug of the caller.
func Gemm[T Float](transA, transB bool, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int) {
	whole(bestFor[T](), transA, transB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Fused is Gemm with fused multiply-adds on every machine, whose bits so are those of every machine. Without AVX2 or NEON it takes
// several times as long as Gemm.
func Fused[T Float](transA, transB bool, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int) {
	whole(bestFor[T]().pairs.leaves, transA, transB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// whole is Gemm by a kernel.
func whole[T Float](kn *kernel, transA, transB bool, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int) {
	check(transA, transB, m, n, k, len(a), lda, len(b), ldb, len(c), ldc)
	threads := threadsFor(m, n, k)
	if threads == 1 {
		gemm(kn, m, n, k, alpha, operand(transA, a, lda), operand(transB, b, ldb), beta, operand(false, c, ldc))
		return
	}
	split(kn, threads, m, n, k, alpha, operand(transA, a, lda), operand(transB, b, ldb), beta, operand(false, c, ldc))
}

// gemm is Gemm after its checks.
func gemm[T Float](kn *kernel, m, n, k int, alpha T, a, b matrix[T], beta T, c matrix[T]) {
	switch {
	case m == 0 || n == 0:
	case c.half != nil:
		rounded(kn, m, n, k, alpha, a, b, beta, c)
	case k == 0 || alpha == 0:
		scale(m, n, beta, c.data, c.row)
	case n == 1 && c.row == 1: // a column is better made as a row
		multiply(kn, 1, m, k, alpha, b.transposed(), a.transposed(), beta, c.data, m)
	default:
		multiply(kn, m, n, k, alpha, a, b, beta, c.data, c.row)
	}
}

// multiply does C = alpha·A·B + beta·C, no size being 0.
func multiply[T Float](kn *kernel, m, n, k int, alpha T, a, b matrix[T], beta T, c []T, ldc int) {
	if kn.leaves != nil {
		multiplyPairwise(kn, m, n, k, alpha, a, b, beta, c, ldc)
		return
	}
	if kn.tiles != nil {
		tiled(kn, m, n, k, float32(alpha), singles(a), singles(b), float32(beta), operand(false, floats(c), ldc))
		return
	}
	if !few(kn, m, n, k, alpha, a, b, beta, c, ldc) {
		blocked(kn, m, n, k, alpha, a, b, beta, operand(false, c, ldc), nil)
	}
}

// scale does C = beta·C.
func scale[T Float](m, n int, beta T, c []T, ldc int) {
	for i := range m {
		row := c[i*ldc:][:n]
		if beta == 0 {
			clear(row)
			continue
		}
		for j := range row {
			row[j] *= beta
		}
	}
}

// Batch does Gemm on count matrices whose starts lie strideA, strideB and
// strideC elements apart. A stride of 0 for A or B uses the same matrix for all.
// The matrices of C must not overlap.
func Batch[T Float](count int, transA, transB bool, m, n, k int, alpha T, a []T, lda, strideA int, b []T, ldb, strideB int, beta T, c []T,
	ldc, strideC int) {
	batches(bestFor[T](), count, transA, transB, m, n, k, alpha, a, lda, strideA, b, ldb, strideB, beta, c, ldc, strideC)
}

// batches is Batch by a kernel.
func batches[T Float](kn *kernel, count int, transA, transB bool, m, n, k int, alpha T, a []T, lda, strideA int, b []T, ldb, strideB int,
	beta T, c []T, ldc, strideC int) {
	if count == 0 || m == 0 || n == 0 {
		return
	}
	if count == 1 {
		whole(kn, transA, transB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	last := count - 1
	check(transA, transB, m, n, k, len(a)-last*strideA, lda, len(b)-last*strideB, ldb, len(c)-last*strideC, ldc)
	batch[T]{kn, m, n, k, alpha, operand(transA, a, lda), strideA, operand(transB, b, ldb),
		strideB, beta, operand(false, c, ldc), strideC}.multiply(count)
}

// BatchBF16 is Batch for A and B of bfloat16. Each element of a bfloat16 C is a sum in
// float32, rounded once, to the nearest, ties to even. Operands are converted as they
// are packed or read, and a bfloat16 C is computed a tile or a block at a time, so that no whole matrix of
// float32 is made. Where bfloat16 is multiplied in float32, as the next paragraph says, these conversions share the ports of
// the multiply-adds: small products so take longer than those of float32, a cube of 64 a quarter, large ones do not.
//
// The sums are those of Batch of the float32 values, bit by bit, except on a CPU with
// AVX-512 BF16 or AMX. With AVX-512 BF16 each is made by VDPBF16PS, which takes the products
// of k two at a time, where that is faster: AMD's CPUs do twice as many products in a cycle by
// it as in float32, Intel's from Sapphire Rapids on half as many, and they do not use it:
//
//	sum = (sum + a[p+1]·b[p+1]) + a[p]·b[p]    p = 0, 2, 4, …, in blocks of 2·blockK
//
// With AMX each is made by TDPBF16PS, which takes them 32 at a time, those of even k apart from
// those of odd k:
//
//	even = (a[p]·b[p] + a[p+2]·b[p+2]) + … + a[p+30]·b[p+30]    p = 0, 32, 64, …
//	odd  = (a[p+1]·b[p+1] + a[p+3]·b[p+3]) + … + a[p+31]·b[p+31]
//	sum  = sum + (even + odd)
//
// Beyond k there are zeros. The sum begins with 0 if beta is 0, and with C if alpha and beta are 1; else it is made in blocks of
// tilesK. With both a product is exact, and each addition is rounded to the
// nearest, ties to even, as a fused multiply-add is. The order of the sum differs, and so does
// its rounding, as with any other order; and operands, sums and results below 2⁻¹²⁶ count as
// zeros. An element still depends on its row of op(A) and its column of op(B) alone: parts and
// threads do not change it, but ranks on CPUs with different ones of these instructions differ.
// GODEBUG=cpu.amxbf16=off switches AMX off, and cpu.avx512bf16=off both. AMX is used on Linux
// alone, and where it lets the process have the tiles.
func BatchBF16[E float32 | dtype.BF16](count int, transA, transB bool, m, n, k int, alpha float32, a []dtype.BF16, lda, strideA int,
	b []dtype.BF16, ldb, strideB int, beta float32, c []E, ldc, strideC int) {
	batchesBF16(halvesKernel(), count, transA, transB, m, n, k, alpha, a, lda, strideA, b, ldb, strideB, beta, c, ldc, strideC)
}

// batchesBF16 is BatchBF16 by a kernel.
func batchesBF16[E float32 | dtype.BF16](kn *kernel, count int, transA, transB bool, m, n, k int, alpha float32, a []dtype.BF16, lda,
	strideA int, b []dtype.BF16, ldb, strideB int, beta float32, c []E, ldc, strideC int) {
	if count == 0 || m == 0 || n == 0 {
		return
	}
	last := count - 1
	check(transA, transB, m, n, k, len(a)-last*strideA, lda, len(b)-last*strideB, ldb, len(c)-last*strideC, ldc)
	var to matrix[float32]
	switch c := any(c).(type) {
	case []float32:
		to = operand(false, c, ldc)
	case []dtype.BF16:
		to = half(false, c, ldc)
	}
	batch[float32]{kn, m, n, k, alpha, half(transA, a, lda), strideA, half(transB, b, ldb), strideB, beta, to,
		strideC}.multiply(count)
}

// check panics if the shape and the slices do not fit.
func check(transA, transB bool, m, n, k, lenA, lda, lenB, ldb, lenC, ldc int) {
	if m < 0 || n < 0 || k < 0 {
		panic(fmt.Sprintf("gemm: m %d, n %d, k %d: a size is negative", m, n, k))
	}
	if transA {
		checkMatrix("A", k, m, lda, lenA)
	} else {
		checkMatrix("A", m, k, lda, lenA)
	}
	if transB {
		checkMatrix("B", n, k, ldb, lenB)
	} else {
		checkMatrix("B", k, n, ldb, lenB)
	}
	checkMatrix("C", m, n, ldc, lenC)
}

func checkMatrix(name string, rows, cols, ld, length int) {
	if rows == 0 || cols == 0 {
		return
	}
	if ld < cols || length < (rows-1)*ld+cols {
		panic(fmt.Sprintf("gemm: %s [%d, %d] with rows %d apart does not fit a slice of %d", name, rows, cols, ld, length))
	}
}
