package cpu

import "github.com/gorun-spmd/gorun/internal/simd"

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
		for i, v := range row {
			beaten := best < v
			if least {
				beaten = best > v
			}
			if beaten || best == v || v != v {
				best, at = v, i
			}
			values[lo+i], index[lo+i] = best, int64(at)
		}
	}
}
