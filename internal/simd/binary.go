package simd

// Add does dst[i] = a[i] + b[i].
func Add[T Number](dst, a, b []T) {
	same("Add", len(dst), len(a), len(b))
	if is32[T]() {
		l := Writing(as32(dst), as32(a), as32(b))
		l.Add(as32(dst), as32(a), as32(b))
		l.Done()
		return
	}
	addGo(dst, a, b)
}

// Add is the function Add at this level.
func (l Level) Add(dst, a, b []float32) {
	if l == Scalar {
		addGo(dst, a, b)
		return
	}
	for i := 0; i < len(dst); i += chunk {
		addVec(uint8(l), &dst[i], &a[i], &b[i], min(chunk, len(dst)-i))
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
		l := Writing(as32(dst), as32(a), as32(b))
		l.Sub(as32(dst), as32(a), as32(b))
		l.Done()
		return
	}
	subGo(dst, a, b)
}

// Sub is the function Sub at this level.
func (l Level) Sub(dst, a, b []float32) {
	if l == Scalar {
		subGo(dst, a, b)
		return
	}
	for i := 0; i < len(dst); i += chunk {
		subVec(uint8(l), &dst[i], &a[i], &b[i], min(chunk, len(dst)-i))
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
		l := Writing(as32(dst), as32(a), as32(b))
		l.Mul(as32(dst), as32(a), as32(b))
		l.Done()
		return
	}
	mulGo(dst, a, b)
}

// Mul is the function Mul at this level.
func (l Level) Mul(dst, a, b []float32) {
	if l == Scalar {
		mulGo(dst, a, b)
		return
	}
	for i := 0; i < len(dst); i += chunk {
		mulVec(uint8(l), &dst[i], &a[i], &b[i], min(chunk, len(dst)-i))
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
		l := Writing(as32(dst), as32(a), as32(b))
		l.Div(as32(dst), as32(a), as32(b))
		l.Done()
		return
	}
	divGo(dst, a, b)
}

// Div is the function Div at this level.
func (l Level) Div(dst, a, b []float32) {
	if l == Scalar {
		divGo(dst, a, b)
		return
	}
	for i := 0; i < len(dst); i += chunk {
		divVec(uint8(l), &dst[i], &a[i], &b[i], min(chunk, len(dst)-i))
	}
}

func divGo[T Number](dst, a, b []T) {
	for i := range dst {
		dst[i] = a[i] / b[i]
	}
}

// Max does dst[i] = max(a[i], b[i]), as Go's built-in: NaN if either is, and -0 is
// below 0.
func Max[T Number](dst, a, b []T) {
	same("Max", len(dst), len(a), len(b))
	if is32[T]() {
		l := Writing(as32(dst), as32(a), as32(b))
		l.Max(as32(dst), as32(a), as32(b))
		l.Done()
		return
	}
	maxGo(dst, a, b)
}

// Max is the function Max at this level.
func (l Level) Max(dst, a, b []float32) {
	if l == Scalar {
		maxGo(dst, a, b)
		return
	}
	for i := 0; i < len(dst); i += chunk {
		maxVec(uint8(l), &dst[i], &a[i], &b[i], min(chunk, len(dst)-i))
	}
}

func maxGo[T Number](dst, a, b []T) {
	for i := range dst {
		dst[i] = max(a[i], b[i])
	}
}

// Min does dst[i] = min(a[i], b[i]), as Go's built-in: NaN if either is, and -0 is
// below 0.
func Min[T Number](dst, a, b []T) {
	same("Min", len(dst), len(a), len(b))
	if is32[T]() {
		l := Writing(as32(dst), as32(a), as32(b))
		l.Min(as32(dst), as32(a), as32(b))
		l.Done()
		return
	}
	minGo(dst, a, b)
}

// Min is the function Min at this level.
func (l Level) Min(dst, a, b []float32) {
	if l == Scalar {
		minGo(dst, a, b)
		return
	}
	for i := 0; i < len(dst); i += chunk {
		minVec(uint8(l), &dst[i], &a[i], &b[i], min(chunk, len(dst)-i))
	}
}

func minGo[T Number](dst, a, b []T) {
	for i := range dst {
		dst[i] = min(a[i], b[i])
	}
}
