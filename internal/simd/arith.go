package simd

// Add does dst[i] = a[i] + b[i].
func Add[T Number](dst, a, b []T) {
	same("Add", len(dst), len(a), len(b))
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

// Add2 does dst1[i], dst2[i] = a[i] + b[i], a[i] + b[i].
func Add2[T Number](dst1, dst2, a, b []T) {
	same("Add2", len(dst1), len(dst2), len(a), len(b))
	for i := range dst1 {
		s := a[i] + b[i]
		dst1[i], dst2[i] = s, s
	}
}

// Sub does dst[i] = a[i] - b[i].
func Sub[T Number](dst, a, b []T) {
	same("Sub", len(dst), len(a), len(b))
	for i := range dst {
		dst[i] = a[i] - b[i]
	}
}

// Mul does dst[i] = a[i] * b[i].
func Mul[T Number](dst, a, b []T) {
	same("Mul", len(dst), len(a), len(b))
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

// Div does dst[i] = a[i] / b[i]. Integers are divided as Go does: toward zero,
// and by zero it panics.
func Div[T Number](dst, a, b []T) {
	same("Div", len(dst), len(a), len(b))
	for i := range dst {
		dst[i] = a[i] / b[i]
	}
}

// Max does dst[i] = max(a[i], b[i]); NaN if either is.
func Max[T Number](dst, a, b []T) {
	same("Max", len(dst), len(a), len(b))
	for i := range dst {
		dst[i] = max(a[i], b[i])
	}
}

// Min does dst[i] = min(a[i], b[i]); NaN if either is.
func Min[T Number](dst, a, b []T) {
	same("Min", len(dst), len(a), len(b))
	for i := range dst {
		dst[i] = min(a[i], b[i])
	}
}

// AddTo does dst[i] += x[i].
func AddTo[T Number](dst, x []T) { Add(dst, dst, x) }

// MulAdd does dst[i] += a[i] * b[i].
func MulAdd[T Number](dst, a, b []T) {
	same("MulAdd", len(dst), len(a), len(b))
	for i := range dst {
		dst[i] += a[i] * b[i]
	}
}

// Axpy does dst[i] += s * x[i].
func Axpy[T Number](dst []T, s T, x []T) {
	same("Axpy", len(dst), len(x))
	for i := range dst {
		dst[i] += s * x[i]
	}
}

// AddScalar does dst[i] = x[i] + s.
func AddScalar[T Number](dst, x []T, s T) {
	same("AddScalar", len(dst), len(x))
	for i := range dst {
		dst[i] = x[i] + s
	}
}

// Scale does dst[i] = x[i] * s.
func Scale[T Number](dst, x []T, s T) {
	same("Scale", len(dst), len(x))
	for i := range dst {
		dst[i] = x[i] * s
	}
}

// Affine does dst[i] = x[i]*s + t, rounded once.
func Affine(dst, x []float32, s, t float32) {
	same("Affine", len(dst), len(x))
	for i := range dst {
		dst[i] = fma(x[i], s, t)
	}
}

// Fill does dst[i] = v.
func Fill[T any](dst []T, v T) {
	for i := range dst {
		dst[i] = v
	}
}
