package simd

import "math"

// fma is a·b + c. The product of two float32 is exact in float64, so the result differs
// from the assembly's only if the sum, rounded to float64, is exactly between two float32.
func fma(a, b, c float32) float32 { return float32(float64(a)*float64(b) + float64(c)) }

func exp(x float32) float32  { return float32(math.Exp(float64(x))) }
func sqrt(x float32) float32 { return float32(math.Sqrt(float64(x))) }
