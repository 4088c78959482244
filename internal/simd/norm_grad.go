package simd

// LayerNormGradRow is the gradient of LayerNormRow for one row: with
// h[i] = (x[i]-mean)·rstd and g[i] = dy[i]·weight[i],
//
//	dweight[i] += dy[i]·h[i]
//	dbias[i]   += dy[i]
//	dx[i]       = rstd·(g[i] - mean of g - h[i]·mean of g·h)
//
// Any of weight (ones), dweight and dbias (not wanted) may be nil.
func (m Mode) LayerNormGradRow(dx, dweight, dbias, x, dy, weight []float32, mean, rstd float64) {
	u := inUnits(mean, rstd)
	sumG, sumGH := ordinary.normalizeGradSums(dweight, dbias, x, dy, weight, u)
	n := float32(max(len(x), 1))
	m.normalizeGrad(dx, x, dy, weight, u, sumG/n, sumGH/n)
}

// RMSNormGradRow is the gradient of RMSNormRow for one row: with h = x·rstd and
// g = dy·weight, dweight += dy·h and dx = rstd·(g - h·mean of g·h).
// Weight (ones) and dweight (not wanted) may be nil.
func (m Mode) RMSNormGradRow(dx, dweight, x, dy, weight []float32, rstd float64) {
	u := inUnits(0, rstd)
	_, sumGH := ordinary.normalizeGradSums(dweight, nil, x, dy, weight, u)
	m.normalizeGrad(dx, x, dy, weight, u, 0, sumGH/float32(max(len(x), 1)))
}

// normalizeGradSums returns Σ g[i] and Σ g[i]·h[i] and adds to dweight and
// dbias, as in LayerNormGradRow: the part of the gradient before the sums of
// several pieces of a row are joined.
func (m Mode) normalizeGradSums(dweight, dbias, x, dy, weight []float32, u units) (sumG, sumGH float32) {
	same("gradient of a norm", len(x), len(dy))
	sameOrNil("gradient of a norm", len(x), dweight, dbias, weight)
	var a, b float64
	if m.has(normalizeGradSumsKernel) {
		for i := 0; i < len(x); i += piece {
			g, gh := normalizeGradSumsVec(m.wide(), at(dweight, i), at(dbias, i), &x[i], &dy[i], at(weight, i), min(piece, len(x)-i), u.mean, u.rstd,
				u.shift)
			a, b = a+float64(g), b+float64(gh)
		}
		return float32(a), float32(b)
	}
	for len(x) > 0 {
		var sumG, sumGH [16]float32
		n := min(piece, len(x))
		for i, v := range x[:n] {
			h, g := u.of(v), dy[i]
			if dweight != nil {
				dweight[i] = FMA(g, h, dweight[i])
			}
			if dbias != nil {
				dbias[i] += g
			}
			if weight != nil {
				g = float32(g * weight[i])
			}
			sumG[i%16] += g
			sumGH[i%16] = FMA(h, g, sumGH[i%16])
		}
		a, b = a+float64(fold(sumG[:])), b+float64(fold(sumGH[:]))
		x, dy, dweight, dbias, weight = x[n:], dy[n:], after(dweight, n), after(dbias, n), after(weight, n)
	}
	return float32(a), float32(b)
}

// after is s[n:], or nil if s is nil.
func after(s []float32, n int) []float32 {
	if s == nil {
		return nil
	}
	return s[n:]
}

// normalizeGrad does dx[i] = rstd·(dy[i]·weight[i] - meanG - h[i]·meanGH), with
// h[i] = (x[i]-mean)·rstd. A nil weight stands for ones.
func (m Mode) normalizeGrad(dx, x, dy, weight []float32, u units, meanG, meanGH float32) {
	same("gradient of a norm", len(x), len(dx))
	if m.has(normalizeGradKernel) {
		for i := 0; i < len(dx); i += chunk {
			normalizeGradVec(m.code(), &dx[i], &x[i], &dy[i], at(weight, i), min(chunk, len(dx)-i), u.mean, u.rstd, u.shift, -meanG, meanGH)
		}
		return
	}
	for i, v := range x {
		w := float32(1)
		if weight != nil {
			w = weight[i]
		}
		dx[i] = u.rstd * FMA(-u.of(v), meanGH, FMA(dy[i], w, -meanG))
	}
}
