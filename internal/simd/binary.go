package simd

// Add does dst[i] = a[i] + b[i].
func Add[T Number](dst, a, b []T) {
	same("Add", len(dst), len(a), len(b))
	if is32[T]() {
		best.add(as32(dst), as32(a), as32(b))
		return
	}
	addGo(dst, a, b)
}

func (l Level) add(dst, a, b []float32) {
	if l == Scalar {
		addGo(dst, a, b)
		return
	}
	for i := 0; i < len(dst); i += chunk {
		addVec(l.wide(), &dst[i], &a[i], &b[i], min(chunk, len(dst)-i))
	}
}

func addGo[T Number](dst, a, b []T) {
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

// Sub does dst[i] = a[i] - b[i].
func Sub[T Number](dst, a, b []T) {
	same("Sub", len(dst), len(a), len(b))
	if is32[T]() {
		best.sub(as32(dst), as32(a), as32(b))
		return
	}
	subGo(dst, a, b)
}

func (l Level) sub(dst, a, b []float32) {
	if l == Scalar {
		subGo(dst, a, b)
		return
	}
	for i := 0; i < len(dst); i += chunk {
		subVec(l.wide(), &dst[i], &a[i], &b[i], min(chunk, len(dst)-i))
	}
}

func subGo[T Number](dst, a, b []T) {
	for i := range dst {
		dst[i] = a[i] - b[i]
	}
}

// Mul does dst[i] = a[i] * b[i].
func Mul[T Number](dst, a, b []T) {
	same("Mul", len(dst), len(a), len(b))
	if is32[T]() {
		best.mul(as32(dst), as32(a), as32(b))
		return
	}
	mulGo(dst, a, b)
}

func (l Level) mul(dst, a, b []float32) {
	if l == Scalar {
		mulGo(dst, a, b)
		return
	}
	for i := 0; i < len(dst); i += chunk {
		mulVec(l.wide(), &dst[i], &a[i], &b[i], min(chunk, len(dst)-i))
	}
}

func mulGo[T Number](dst, a, b []T) {
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

// Div does dst[i] = a[i] / b[i]. Integers are divided as Go does: toward zero,
// and by zero it panics.
func Div[T Number](dst, a, b []T) {
	same("Div", len(dst), len(a), len(b))
	if is32[T]() {
		best.div(as32(dst), as32(a), as32(b))
		return
	}
	divGo(dst, a, b)
}

func (l Level) div(dst, a, b []float32) {
	if l == Scalar {
		divGo(dst, a, b)
		return
	}
	for i := 0; i < len(dst); i += chunk {
		divVec(l.wide(), &dst[i], &a[i], &b[i], min(chunk, len(dst)-i))
	}
}

func divGo[T Number](dst, a, b []T) {
	for i := range dst {
		dst[i] = a[i] / b[i]
	}
}

// Max does dst[i] = max(a[i], b[i]); NaN if either is.
func Max[T Number](dst, a, b []T) {
	same("Max", len(dst), len(a), len(b))
	if is32[T]() {
		best.max(as32(dst), as32(a), as32(b))
		return
	}
	maxGo(dst, a, b)
}

func (l Level) max(dst, a, b []float32) {
	if l == Scalar {
		maxGo(dst, a, b)
		return
	}
	for i := 0; i < len(dst); i += chunk {
		maxVec(l.wide(), &dst[i], &a[i], &b[i], min(chunk, len(dst)-i))
	}
}

func maxGo[T Number](dst, a, b []T) {
	for i := range dst {
		dst[i] = max(a[i], b[i])
	}
}

// Min does dst[i] = min(a[i], b[i]); NaN if either is.
func Min[T Number](dst, a, b []T) {
	same("Min", len(dst), len(a), len(b))
	if is32[T]() {
		best.min(as32(dst), as32(a), as32(b))
		return
	}
	minGo(dst, a, b)
}

func (l Level) min(dst, a, b []float32) {
	if l == Scalar {
		minGo(dst, a, b)
		return
	}
	for i := 0; i < len(dst); i += chunk {
		minVec(l.wide(), &dst[i], &a[i], &b[i], min(chunk, len(dst)-i))
	}
}

func minGo[T Number](dst, a, b []T) {
	for i := range dst {
		dst[i] = min(a[i], b[i])
	}
}
