package simd

// A level is an instruction set the kernels exist for. Higher ones include the
// lower ones.
type level uint8

const (
	scalar level = iota // plain Go
	avx2                // AVX2, FMA and F16C: 8 float32 at a time
	avx512              // AVX-512 F, BW, DQ and VL: 16 float32 at a time
)

// best is what this processor can run; it is set once, by detect, and only read.
var best = detect()

// chunk is the most elements one assembly call handles, so that none lasts
// longer than some 50 µs even from slow memory.
const chunk = 1 << 14

// Number are the element types the arithmetic functions accept.
type Number interface {
	float32 | float64 | int8 | int16 | int32 | int64 | uint8
}

// same panics unless every length is n.
func same(op string, n int, lengths ...int) {
	for _, l := range lengths {
		if l != n {
			panic(lengthError(op, n, l))
		}
	}
}

// float32s returns s itself when its elements are float32.
func float32s[T Number](s []T) ([]float32, bool) {
	f, ok := any(s).([]float32)
	return f, ok
}
