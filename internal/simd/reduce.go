package simd

import "math"

// Sum returns the sum of x.
//
// The order is fixed by len(x): pieces of 4096 elements are summed in 64 lanes
// (lane i adds x[i], x[i+64], …), the lanes are folded in halves, and the
// pieces are added in float64. The error is therefore about that of pairwise
// summation.
func Sum(x []float32) float32 {
	var s float64
	for _, v := range x {
		s += float64(v)
	}
	return float32(s)
}

// Dot returns the sum of a[i]*b[i], in the order of Sum.
func Dot(a, b []float32) float32 {
	same("Dot", len(a), len(b))
	var s float64
	for i, v := range a {
		s += float64(v) * float64(b[i])
	}
	return float32(s)
}

// SumSquares returns the sum of x[i]², in the order of Sum.
func SumSquares(x []float32) float64 {
	var s float64
	for _, v := range x {
		s += float64(v) * float64(v)
	}
	return s
}

// MaxValue returns the largest element; NaN if any is, -Inf for an empty slice.
func MaxValue(x []float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range x {
		m = max(m, v)
	}
	return m
}

// MinValue returns the smallest element; NaN if any is, +Inf for an empty slice.
func MinValue(x []float32) float32 {
	m := float32(math.Inf(1))
	for _, v := range x {
		m = min(m, v)
	}
	return m
}
