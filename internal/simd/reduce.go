package simd

import "math"

// piece is how many elements a sum adds in float32 before it goes on in float64.
const piece = 4096

// lanes is the number of partial sums of a piece: lane i adds elements i, i+64, …
const lanes = 64

// pieces adds the results of f for the pieces of n elements, from i on.
func pieces(n int, f func(i, n int) float32) float64 {
	var s float64
	for i := 0; i < n; i += piece {
		s += float64(f(i, min(piece, n-i)))
	}
	return s
}

// fold adds the upper half of the lanes, a power of two, to the lower until one is left.
func fold(s []float32) float32 {
	for w := len(s) / 2; w > 0; w /= 2 {
		for i := range w {
			s[i] += s[i+w]
		}
	}
	return s[0]
}

// Sum returns the sum of x.
//
// The order is fixed by len(x) alone: pieces of 4096 elements are summed in 64
// lanes (lane i adds x[i], x[i+64], …), the upper half of the lanes is added to
// the lower until one is left, and the pieces are added in float64. The error is
// about that of pairwise summation.
func Sum(x []float32) float32 { return float32(ordinary.sum(x)) }

func (m Mode) sum(x []float32) float64 {
	return pieces(len(x), func(i, n int) float32 {
		if m.has(sumKernel) {
			return sumVec(m.wide(), &x[i], n)
		}
		var s [lanes]float32
		for j, v := range x[i:][:n] {
			s[j%lanes] += v
		}
		return fold(s[:])
	})
}

// Dot returns the sum of a[i]*b[i], in the order of Sum.
func Dot(a, b []float32) float32 {
	same("Dot", len(a), len(b))
	return float32(noPrefetch.dot(a, b))
}

func (m Mode) dot(a, b []float32) float64 {
	return pieces(len(a), func(i, n int) float32 {
		if m.has(dotKernel) {
			return dotVec(m.code(), &a[i], &b[i], n)
		}
		var s [lanes]float32
		b := b[i:][:n]
		for j, v := range a[i:][:n] {
			s[j%lanes] = FMA(v, b[j], s[j%lanes])
		}
		return fold(s[:])
	})
}

// SumShifted returns the sum of (x[i]-shift)·weight[i], in the order of Sum. With the
// largest element as shift, rounding does not hide the differences of large elements. A
// nil weight stands for ones.
func SumShifted(x, weight []float32, shift float32) float64 {
	sameOrNil("SumShifted", len(x), weight)
	return ordinary.sumShifted(x, weight, shift)
}

func (m Mode) sumShifted(x, weight []float32, shift float32) float64 {
	return pieces(len(x), func(i, n int) float32 {
		switch {
		case m.has(sumShiftedKernel) && weight == nil:
			return sumShiftedVec(m.wide(), &x[i], n, shift)
		case m.has(sumShiftedWeightedKernel):
			return sumShiftedWeightedVec(m.wide(), &x[i], &weight[i], n, shift)
		}
		var s [lanes]float32
		for j, v := range x[i:][:n] {
			w := float32(1)
			if weight != nil {
				w = weight[i+j]
			}
			s[j%lanes] = FMA(v-shift, w, s[j%lanes])
		}
		return fold(s[:])
	})
}

// SumSquares returns the sum of x[i]², in the order of Sum. It returns float64 because the
// sums of many slices are joined to one norm.
func SumSquares(x []float32) float64 { return ordinary.sumSquares(x, 0) }

// sumSquares returns the sum of (x[i]-mean)².
func (m Mode) sumSquares(x []float32, mean float32) float64 {
	return pieces(len(x), func(i, n int) float32 {
		if m.has(sumSquaresKernel) {
			return sumSquaresVec(m.wide(), &x[i], n, mean)
		}
		var s [lanes]float32
		for j, v := range x[i:][:n] {
			v -= mean
			s[j%lanes] = FMA(v, v, s[j%lanes])
		}
		return fold(s[:])
	})
}

// Product returns the product of x, in the order of Sum, but pieces are multiplied in float32.
func Product(x []float32) float32 { return ordinary.product(x) }

func (m Mode) product(x []float32) float32 {
	all := float32(1)
	for i := 0; i < len(x); i += piece {
		n := min(piece, len(x)-i)
		if m.has(productKernel) {
			all *= productVec(m.wide(), &x[i], n)
			continue
		}
		var p [lanes]float32
		fillGo(p[:], 1)
		for j, v := range x[i:][:n] {
			p[j%lanes] *= v
		}
		for w := lanes / 2; w > 0; w /= 2 {
			mulGo(p[:w], p[:w], p[w:2*w])
		}
		all *= p[0]
	}
	return all
}

// MaxValue returns the largest element; NaN if any is, -Inf for an empty slice. -0 is
// below 0, as everywhere in this package.
func MaxValue(x []float32) float32 { return ordinary.maxValue(x) }

func (m Mode) maxValue(x []float32) float32 {
	top := float32(math.Inf(-1))
	if !m.has(maxValueKernel) {
		for _, v := range x {
			top = max(top, v)
		}
		return top
	}
	for i := 0; i < len(x); i += chunk {
		top = max(top, maxValueVec(m.wide(), &x[i], min(chunk, len(x)-i)))
	}
	if top == 0 && math.Signbit(float64(top)) { // the kernel takes zeros of both signs for equal
		for _, v := range x {
			top = max(top, v)
		}
	}
	return top
}

// MinValue returns the smallest element; NaN if any is, +Inf for an empty slice. -0 is
// below 0.
func MinValue(x []float32) float32 { return ordinary.minValue(x) }

func (m Mode) minValue(x []float32) float32 {
	least := float32(math.Inf(1))
	if !m.has(minValueKernel) {
		for _, v := range x {
			least = min(least, v)
		}
		return least
	}
	for i := 0; i < len(x); i += chunk {
		least = min(least, minValueVec(m.wide(), &x[i], min(chunk, len(x)-i)))
	}
	return least
}
