package simd

import "unsafe"

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

// MaxScalar does dst[i] = max(x[i], s), MinScalar min(x[i], s), DivBy x[i]/s, DivInto s/x[i] and SubFrom s - x[i].
func (m Mode) MaxScalar(dst, x []float32, s float32) {
	m.eachWith(maxScalarKernel, maxScalarVec, func(x, s float32) float32 { return max(x, s) }, dst, x, s)
}

// MinScalar is described with MaxScalar.
func (m Mode) MinScalar(dst, x []float32, s float32) {
	m.eachWith(minScalarKernel, minScalarVec, func(x, s float32) float32 { return min(x, s) }, dst, x, s)
}

// DivBy is described with MaxScalar.
func (m Mode) DivBy(dst, x []float32, s float32) {
	m.eachWith(divByKernel, divByVec, func(x, s float32) float32 { return x / s }, dst, x, s)
}

// DivInto is described with MaxScalar.
func (m Mode) DivInto(dst, x []float32, s float32) {
	m.eachWith(divIntoKernel, divIntoVec, func(x, s float32) float32 { return s / x }, dst, x, s)
}

// SubFrom is described with MaxScalar.
func (m Mode) SubFrom(dst, x []float32, s float32) {
	m.eachWith(subFromKernel, subFromVec, func(x, s float32) float32 { return s - x }, dst, x, s)
}

// eachWith does dst[i] = plain(x[i], s), by kernel where there is assembly.
func (m Mode) eachWith(k kernel, vec func(level uint8, dst, x *float32, n int, s float32), plain func(x, s float32) float32,
	dst, x []float32, s float32) {
	if !m.has(k) {
		for i, v := range x {
			dst[i] = plain(v, s)
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		vec(m.code(), &dst[i], &x[i], min(chunk, len(dst)-i), s)
	}
}

// Fill does dst[i] = v.
func Fill[T Elem](dst []T, v T) {
	const words = 1024
	switch done := 0; unsafe.Sizeof(v) {
	case 4: // any bits will do
		ordinary.fill(bitsIn[float32](dst), *(*float32)(unsafe.Pointer(&v)))
	case 8:
		done = min(len(dst), words)
		fillGo(dst[:done], v)
		for ; done < len(dst); done += min(len(dst)-done, words) {
			copy(dst[done:], dst[:min(len(dst)-done, words)])
		}
	default: // as words of several
		each := int(4 / unsafe.Sizeof(v))
		if n := len(dst) / each; n > 0 {
			fillGo(dst[:each], v)
			ordinary.fill(bitsIn[float32](dst[:n*each]), bitsIn[float32](dst[:each])[0])
			done = n * each
		}
		fillGo(dst[done:], v)
	}
}

func fillGo[T Elem](dst []T, v T) {
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
