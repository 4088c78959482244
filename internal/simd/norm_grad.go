package simd

// LayerNormGradRow is the gradient of LayerNormRow for one row: with
// h[i] = (x[i]-mean)·rstd and g[i] = dy[i]·weight[i],
//
//	dweight[i] += dy[i]·h[i]
//	dbias[i]   += dy[i]
//	dx[i]       = rstd·(g[i] - mean of g - h[i]·mean of g·h)
//
// Any of weight (ones), dweight and dbias (not wanted) may be nil.
func (l Level) LayerNormGradRow(dx, dweight, dbias, x, dy, weight []float32, mean, rstd float64) {
	m, k := float32(mean), float32(rstd)
	sumG, sumGH := NormalizeGradSums(dweight, dbias, x, dy, weight, m, k)
	n := float32(max(len(x), 1))
	l.NormalizeGrad(dx, x, dy, weight, m, k, sumG/n, sumGH/n)
}

// RMSNormGradRow is the gradient of RMSNormRow for one row: with h = x·rstd and
// g = dy·weight, dweight += dy·h and dx = rstd·(g - h·mean of g·h).
// Weight (ones) and dweight (not wanted) may be nil.
func (l Level) RMSNormGradRow(dx, dweight, x, dy, weight []float32, rstd float64) {
	k := float32(rstd)
	_, sumGH := NormalizeGradSums(dweight, nil, x, dy, weight, 0, k)
	l.NormalizeGrad(dx, x, dy, weight, 0, k, 0, sumGH/float32(max(len(x), 1)))
}

// NormalizeGradSums returns Σ g[i] and Σ g[i]·h[i] and adds to dweight and
// dbias, as in LayerNormGradRow: the part of the gradient before the sums of
// several pieces of a row are joined.
func NormalizeGradSums(dweight, dbias, x, dy, weight []float32, mean, rstd float32) (sumG, sumGH float32) {
	same("NormalizeGradSums", len(x), len(dy))
	sameOrNil("NormalizeGradSums", len(x), dweight, dbias, weight)
	return best.normalizeGradSums(dweight, dbias, x, dy, weight, mean, rstd)
}

func (l Level) normalizeGradSums(dweight, dbias, x, dy, weight []float32, mean, rstd float32) (sumG, sumGH float32) {
	var a, b float64
	if l > Scalar {
		for i := 0; i < len(x); i += piece {
			g, gh := normalizeGradSumsVec(l.wide(), at(dweight, i), at(dbias, i), &x[i], &dy[i], at(weight, i), min(piece, len(x)-i), mean, rstd)
			a, b = a+float64(g), b+float64(gh)
		}
		return float32(a), float32(b)
	}
	for i, v := range x {
		h, g := (v-mean)*rstd, dy[i]
		if dweight != nil {
			dweight[i] += g * h
		}
		if dbias != nil {
			dbias[i] += g
		}
		if weight != nil {
			g *= weight[i]
		}
		a += float64(g)
		b += float64(g) * float64(h)
	}
	return float32(a), float32(b)
}

// NormalizeGrad does dx[i] = rstd·(dy[i]·weight[i] - meanG - h[i]·meanGH), with
// h[i] = (x[i]-mean)·rstd. A nil weight stands for ones.
func (l Level) NormalizeGrad(dx, x, dy, weight []float32, mean, rstd, meanG, meanGH float32) {
	same("NormalizeGrad", len(dx), len(x), len(dy))
	sameOrNil("NormalizeGrad", len(dx), weight)
	l.normalizeGrad(dx, x, dy, weight, mean, rstd, meanG, meanGH)
}

func (l Level) normalizeGrad(dx, x, dy, weight []float32, mean, rstd, meanG, meanGH float32) {
	if l > Scalar {
		for i := 0; i < len(dx); i += chunk {
			normalizeGradVec(uint8(l), &dx[i], &x[i], &dy[i], at(weight, i), min(chunk, len(dx)-i), mean, rstd, meanG, meanGH)
		}
		return
	}
	for i, v := range x {
		g := dy[i]
		if weight != nil {
			g *= weight[i]
		}
		dx[i] = rstd * (g - meanG - (v-mean)*rstd*meanGH)
	}
}
