package kernel

import "math"

// lgamma returns ln|Γ(x)|; +Inf at 0, at negative integers and at ±Inf.
func lgamma(x float64) float64 {
	if math.IsInf(x, -1) {
		return math.Inf(1)
	}
	y, _ := math.Lgamma(x)
	return y
}

// digamma returns the derivative of lgamma: ∓Inf at ±0, NaN at negative integers. From leastOfSeries on it is
// the asymptotic series of Abramowitz and Stegun, 6.3.18; smaller arguments are brought there by ψ(x) = ψ(x+1) - 1/x,
// negative ones by ψ(x) = ψ(1-x) - π/tan(πx).
func digamma(x float64) float64 {
	switch {
	case x == 0:
		return math.Copysign(math.Inf(1), -x)
	case x < 0 && x == math.Floor(x):
		return math.NaN()
	case x < 0:
		return digamma(1-x) - math.Pi/math.Tan(math.Pi*(x-math.Round(x)))
	}
	sum := 0.0
	for ; x < leastOfSeries; x++ {
		sum -= 1 / x
	}
	z := 1 / (x * x)
	series := z * (1./12 - z*(1./120-z*(1./252-z*(1./240-z*(1./132-z*(691./32760-z/12))))))
	return sum + math.Log(x) - 0.5/x - series
}

// trigamma returns the derivative of digamma: +Inf at 0 and at negative integers. See digamma, and Abramowitz and
// Stegun, 6.4.12.
func trigamma(x float64) float64 {
	switch {
	case x <= 0 && x == math.Floor(x):
		return math.Inf(1)
	case x < 0:
		s := math.Sin(math.Pi * (x - math.Round(x)))
		return math.Pi*math.Pi/(s*s) - trigamma(1-x)
	}
	sum := 0.0
	for ; x < leastOfSeries; x++ {
		sum += 1 / (x * x)
	}
	z := 1 / (x * x)
	series := z * (1./6 - z*(1./30-z*(1./42-z*(1./30-z*(5./66-z*(691./2730-z*7/6))))))
	return sum + (1+0.5/x+series)/x
}

// leastOfSeries is the least argument for which digamma and trigamma use their series, whose error there is 1e-16.
const leastOfSeries = 10

// bessel0 and bessel1 return the modified Bessel functions of the first kind of order 0 and 1, the second being the
// derivative of the first.
func bessel0(x float64) float64 { return bessel(0, x) }
func bessel1(x float64) float64 { return bessel(1, x) }

// bessel returns the modified Bessel function of the first kind and of an order, 0 or 1. Up to leastOfBessel it is the
// power series, whose terms have one sign; beyond, the asymptotic series of Abramowitz and Stegun, 9.7.1.
func bessel(order int, x float64) float64 {
	a, n := math.Abs(x), float64(order)
	sum, term := 1.0, 1.0
	if a <= leastOfBessel {
		if order == 1 {
			sum, term = x/2, x/2
		}
		for k := 1.0; math.Abs(term) > math.Abs(sum)*0x1p-54; k++ {
			term *= a * a / (4 * k * (k + n))
			sum += term
		}
		return sum
	}
	a = min(a, 2000) // where both results are infinite already
	for k := 1.0; math.Abs(term) > 0x1p-54; k++ {
		odd := 2*k - 1
		term *= (odd*odd - 4*n*n) / (8 * k * a)
		sum += term
	}
	half := math.Exp(a / 2) // eᵃ may be too large where the result is not
	y := half / math.Sqrt(2*math.Pi*a) * sum * half
	if order == 1 {
		return math.Copysign(y, x)
	}
	return y
}

// leastOfBessel is the least argument for which bessel uses its asymptotic series, which there reaches 1e-20.
const leastOfBessel = 25
