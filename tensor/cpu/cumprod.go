package cpu

import (
	"math"

	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Cumprod computes the products of the elements up to each one of rows of n: in pass after pass an element is multiplied by the one have
// before it, for have 1, 2, 4, …, after which it is a product of twice as many.
func Cumprod[T number](dst, x []T, n int) {
	parallel(len(x)/max(n, 1), n, 1, func(from, to int) {
		spare := make([]T, n)
		for lo := from * n; lo < to*n; lo += n {
			y, next := dst[lo:lo+n], spare
			copy(y, x[lo:lo+n])
			for have := 1; have < n; have *= 2 {
				double(next, y, have)
				y, next = next, y
			}
			copy(dst[lo:lo+n], y)
		}
	})
}

// double is a pass of Cumprod.
func double[T number](next, y []T, have int) {
	copy(next[:have], y)
	simd.Mul(next[have:], y[have:], y[:len(y)-have])
}

// CumprodGrad computes the gradient of Cumprod, pass by pass from the last one back. It is right where elements are 0.
func CumprodGrad[T float](dx, dy, x []T, n int) {
	parallel(len(x)/max(n, 1), 4*n, 1, func(from, to int) {
		var passes [][]T // what each pass begins with
		for have := 1; have < n; have *= 2 {
			passes = append(passes, make([]T, n))
		}
		spare, part := make([]T, n), make([]T, n)
		for lo := from * n; lo < to*n; lo += n {
			g, next := dx[lo:lo+n], spare
			copy(g, dy[lo:lo+n])
			for k, y := range passes {
				if k == 0 {
					copy(y, x[lo:lo+n])
				} else {
					double(y, passes[k-1], 1<<(k-1))
				}
			}
			for k := len(passes) - 1; k >= 0; k-- {
				y, have := passes[k], 1<<k
				simd.Mul(next[:n-have], g[have:], y[have:])
				clear(next[n-have:])
				simd.AddTo(next[:have], g[:have])
				simd.Mul(part[have:], g[have:], y[:n-have])
				simd.AddTo(next[have:], part[have:])
				g, next = next, g
			}
			simd.AddScalar(dx[lo:lo+n], g, 0) // no -0, as of sums that begin with 0
		}
	})
}

// Running computes the largest of the elements up to each one of rows of n, or with least the smallest, and where they are: of equal
// ones the last, and of NaN too.
func Running[T number](values []T, index []int64, x []T, n int, least bool) {
	for lo := 0; lo < len(x); lo += n {
		row, best, at := x[lo:lo+n], x[lo], 0
		values, index := values[lo:lo+n], index[lo:lo+n]
		if least {
			for i, v := range row {
				if !(v > best) && (best == best || v != v) { // few are, so that the branch is foreseen
					best, at = v, i
				}
				values[i], index[i] = best, int64(at)
			}
			continue
		}
		for i, v := range row {
			if !(v < best) && (best == best || v != v) {
				best, at = v, i
			}
			values[i], index[i] = best, int64(at)
		}
	}
}

// LogCumsumExp computes ln Σ eˣ of the elements up to each one of rows of n: the largest of them, plus the logarithm of the sum of
// what is left of each, which is made smaller where a larger one comes.
func LogCumsumExp[T float](dst, x []T, n int) {
	exp, log := valueOf[T](kernel.OpExp), valueOf[T](kernel.OpLog)
	parallel(len(x)/max(n, 1), 8*n, 1, func(from, to int) {
		tops, sums := make([]T, n), make([]T, n)
		for lo := from * n; lo < to*n; lo += n {
			top := T(math.Inf(-1))
			for i, v := range x[lo : lo+n] {
				top = max(top, v)
				tops[i] = top
				if math.IsInf(float64(top), 0) { // the difference might be NaN
					tops[i] = 0
				}
			}
			simd.Sub(sums, x[lo:lo+n], tops)
			exp(sums, sums)
			sum := 0.0
			for i, v := range sums {
				if i > 0 && tops[i] != tops[i-1] && sum != 0 {
					sum *= math.Exp(float64(tops[i-1] - tops[i]))
				}
				sum += float64(v)
				sums[i] = T(sum)
			}
			log(sums, sums)
			simd.Add(dst[lo:lo+n], sums, tops)
		}
	})
}

// LogCumsumExpGrad computes the gradient of y = LogCumsumExp(x): dx[i] = Σ dy[k]·exp(x[i]-y[k]) over k >= i, which is exp(x[i]-y[i])
// times a sum that passes from each element to the one before it, times exp(y[i]-y[i+1]).
func LogCumsumExpGrad[T float](dx, dy, x, y []T, n int) {
	exp := valueOf[T](kernel.OpExp)
	parallel(len(x)/max(n, 1), 8*n, 1, func(from, to int) {
		share, passed := make([]T, n), make([]T, n)
		for lo := from * n; lo < to*n; lo += n {
			x, y, dy, dx := x[lo:lo+n], y[lo:lo+n], dy[lo:lo+n], dx[lo:lo+n]
			for i, v := range y {
				share[i], passed[i] = less(x[i], v), less(v, y[min(i+1, n-1)])
			}
			exp(share, share)
			exp(passed, passed)
			var sum T
			for i := n - 1; i >= 0; i-- {
				sum = T(sum*passed[i]) + dy[i]
				dx[i] = sum * share[i]
			}
		}
	})
}

// less is a - b, of equal infinities 0.
func less[T float](a, b T) T {
	if a == b {
		return 0
	}
	return a - b
}
