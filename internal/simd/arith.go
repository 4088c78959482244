package simd

// AddTo does dst[i] += x[i]. It is for a dst in the cache, to which many slices are added.
func AddTo[T Number](dst, x []T) {
	same("AddTo", len(dst), len(x))
	if is32[T]() {
		noPrefetch.addTo(as32(dst), as32(x))
		return
	}
	addGo(dst, dst, x)
}

func (m Mode) addTo(dst, x []float32) {
	if !m.has(addToKernel) {
		addGo(dst, dst, x)
		return
	}
	for i := 0; i < len(dst); i += chunk {
		addToVec(m.code(), &dst[i], &x[i], min(chunk, len(dst)-i))
	}
}

// Add2 does dst1[i], dst2[i] = a[i] + b[i], a[i] + b[i].
func Add2[T Number](dst1, dst2, a, b []T) {
	same("Add2", len(dst1), len(dst2), len(a), len(b))
	if is32[T]() {
		noPrefetch.add2(as32(dst1), as32(dst2), as32(a), as32(b))
		return
	}
	add2Go(dst1, dst2, a, b)
}

func (m Mode) add2(dst1, dst2, a, b []float32) {
	if !m.has(add2Kernel) {
		add2Go(dst1, dst2, a, b)
		return
	}
	for i := 0; i < len(a); i += chunk {
		add2Vec(m.code(), &dst1[i], &dst2[i], &a[i], &b[i], min(chunk, len(a)-i))
	}
}

func add2Go[T Number](dst1, dst2, a, b []T) {
	for i := range dst1 {
		s := a[i] + b[i]
		dst1[i], dst2[i] = s, s
	}
}

// Axpy does dst[i] += s * x[i], for float32 rounded once.
func Axpy[T Number](dst []T, s T, x []T) {
	same("Axpy", len(dst), len(x))
	if is32[T]() {
		noPrefetch.axpy(as32(dst), as32(x), float32(s))
		return
	}
	for i := range dst {
		dst[i] += s * x[i]
	}
}

// AxpyRow is Axpy in the mode of Apart.
func AxpyRow[T Number](m Mode, dst []T, s T, x []T) {
	same("AxpyRow", len(dst), len(x))
	if is32[T]() {
		m.axpy(as32(dst), as32(x), float32(s))
		return
	}
	Axpy(dst, s, x)
}

func (m Mode) axpy(dst, x []float32, s float32) {
	if !m.has(axpyKernel) {
		for i := range dst {
			dst[i] = FMA(x[i], s, dst[i])
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		axpyVec(m.code(), &dst[i], &x[i], min(chunk, len(dst)-i), s)
	}
}

// AddScalar does dst[i] = x[i] + s.
func AddScalar[T Number](dst, x []T, s T) {
	same("AddScalar", len(dst), len(x))
	if is32[T]() {
		m := Writing(as32(dst), as32(x))
		m.AddScalar(as32(dst), as32(x), float32(s))
		m.Done()
		return
	}
	addScalarGo(dst, x, s)
}

// AddScalar is the function AddScalar in this mode.
func (m Mode) AddScalar(dst, x []float32, s float32) {
	if !m.has(addScalarKernel) {
		addScalarGo(dst, x, s)
		return
	}
	for i := 0; i < len(dst); i += chunk {
		addScalarVec(m.code(), &dst[i], &x[i], min(chunk, len(dst)-i), s)
	}
}

func addScalarGo[T Number](dst, x []T, s T) {
	for i := range dst {
		dst[i] = x[i] + s
	}
}

// Scale does dst[i] = x[i] * s.
func Scale[T Number](dst, x []T, s T) {
	same("Scale", len(dst), len(x))
	if is32[T]() {
		m := Writing(as32(dst), as32(x))
		m.Scale(as32(dst), as32(x), float32(s))
		m.Done()
		return
	}
	scaleGo(dst, x, s)
}

// Scale is the function Scale in this mode.
func (m Mode) Scale(dst, x []float32, s float32) {
	if !m.has(scaleKernel) {
		scaleGo(dst, x, s)
		return
	}
	for i := 0; i < len(dst); i += chunk {
		scaleVec(m.code(), &dst[i], &x[i], min(chunk, len(dst)-i), s)
	}
}

func scaleGo[T Number](dst, x []T, s T) {
	for i := range dst {
		dst[i] = x[i] * s
	}
}

// Fill does dst[i] = v.
func Fill[T Number](dst []T, v T) {
	if is32[T]() {
		ordinary.fill(as32(dst), float32(v))
		return
	}
	fillGo(dst, v)
}

func fillGo[T Number](dst []T, v T) {
	for i := range dst {
		dst[i] = v
	}
}

func (m Mode) fill(dst []float32, v float32) {
	if !m.has(fillKernel) {
		fillGo(dst, v)
		return
	}
	for i := 0; i < len(dst); i += chunk {
		fillVec(m.wide(), &dst[i], min(chunk, len(dst)-i), v)
	}
}
