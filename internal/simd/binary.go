package simd

// Add does dst[i] = a[i] + b[i].
func Add[T Number](dst, a, b []T) {
	same("Add", len(dst), len(a), len(b))
	if is32[T]() {
		m := Writing(as32(dst), as32(a), as32(b))
		m.Add(as32(dst), as32(a), as32(b))
		m.Done()
		return
	}
	addGo(dst, a, b)
}

// Add is the function Add in this mode.
func (m Mode) Add(dst, a, b []float32) {
	if !m.has(addKernel) {
		addGo(dst, a, b)
		return
	}
	for i := 0; i < len(dst); i += chunk {
		addVec(m.code(), &dst[i], &a[i], &b[i], min(chunk, len(dst)-i))
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
		m := Writing(as32(dst), as32(a), as32(b))
		m.Sub(as32(dst), as32(a), as32(b))
		m.Done()
		return
	}
	subGo(dst, a, b)
}

// Sub is the function Sub in this mode.
func (m Mode) Sub(dst, a, b []float32) {
	if !m.has(subKernel) {
		subGo(dst, a, b)
		return
	}
	for i := 0; i < len(dst); i += chunk {
		subVec(m.code(), &dst[i], &a[i], &b[i], min(chunk, len(dst)-i))
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
		m := Writing(as32(dst), as32(a), as32(b))
		m.Mul(as32(dst), as32(a), as32(b))
		m.Done()
		return
	}
	mulGo(dst, a, b)
}

// Mul is the function Mul in this mode.
func (m Mode) Mul(dst, a, b []float32) {
	if !m.has(mulKernel) {
		mulGo(dst, a, b)
		return
	}
	for i := 0; i < len(dst); i += chunk {
		mulVec(m.code(), &dst[i], &a[i], &b[i], min(chunk, len(dst)-i))
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
		m := Writing(as32(dst), as32(a), as32(b))
		m.Div(as32(dst), as32(a), as32(b))
		m.Done()
		return
	}
	divGo(dst, a, b)
}

// Div is the function Div in this mode.
func (m Mode) Div(dst, a, b []float32) {
	if !m.has(divKernel) {
		divGo(dst, a, b)
		return
	}
	for i := 0; i < len(dst); i += chunk {
		divVec(m.code(), &dst[i], &a[i], &b[i], min(chunk, len(dst)-i))
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
		m := Writing(as32(dst), as32(a), as32(b))
		m.Max(as32(dst), as32(a), as32(b))
		m.Done()
		return
	}
	maxGo(dst, a, b)
}

// Max is the function Max in this mode.
func (m Mode) Max(dst, a, b []float32) {
	if !m.has(maxKernel) {
		maxGo(dst, a, b)
		return
	}
	for i := 0; i < len(dst); i += chunk {
		maxVec(m.code(), &dst[i], &a[i], &b[i], min(chunk, len(dst)-i))
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
		m := Writing(as32(dst), as32(a), as32(b))
		m.Min(as32(dst), as32(a), as32(b))
		m.Done()
		return
	}
	minGo(dst, a, b)
}

// Min is the function Min in this mode.
func (m Mode) Min(dst, a, b []float32) {
	if !m.has(minKernel) {
		minGo(dst, a, b)
		return
	}
	for i := 0; i < len(dst); i += chunk {
		minVec(m.code(), &dst[i], &a[i], &b[i], min(chunk, len(dst)-i))
	}
}

func minGo[T Number](dst, a, b []T) {
	for i := range dst {
		dst[i] = min(a[i], b[i])
	}
}
