package gemm

// A Packer writes a part of a matrix [k, n] that is not in memory as such, rows p to p+rows and columns j to j+cols, in panels of
// width columns: element (p+r, j+c) goes to dst[c/width*width*rows + r*width + c%width].
type Packer[T Float] func(dst []T, width, p, j, rows, cols int)

// Made does C = A·B + beta·C with factors that are made block by block: a packs Aᵀ [k, m], and b packs B [k, n]. The bits are those of
// Gemm.
func Made[T Float](m, n, k int, a, b Packer[T], beta T, c []T, ldc int) {
	checkMatrix("C", m, n, ldc, len(c))
	if m == 0 || n == 0 || k == 0 {
		scale(m, n, beta, c, ldc)
		return
	}
	kn, pool := bestFor[T](), poolOf[T]()
	ws := pool.Get().(*workspace[T])
	defer pool.Put(ws)
	to := operand(false, c, ldc)
	for j := 0; j < n; j += blockN {
		nb := min(blockN, n-j)
		for p := 0; p < k; p += blockK {
			kb, beta := min(blockK, k-p), beta
			if p > 0 {
				beta = 1
			}
			b(ws.b[:], kn.cols, p, j, kb, nb)
			bp := panels[T]{matrix[T]{ws.b[:], nil, kn.cols, 1}, kb * kn.cols}
			for i := 0; i < m; i += blockM {
				mb := min(blockM, m-i)
				a(ws.a[:], kn.rows, p, i, kb, mb)
				ap := panels[T]{matrix[T]{ws.a[:], nil, 1, kn.rows}, kb * kn.rows}
				macro(kn, i, j, mb, nb, kb, 1, &ap, &bp, beta, &to, nil, nil)
			}
		}
	}
}
