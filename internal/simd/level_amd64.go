package simd

import "golang.org/x/sys/cpu"

// neonKernels are none of this machine's.
const neonKernels kernelSet = 0

// detect returns the highest level of this processor. F16C is not asked for: no
// processor has AVX2 without it.
func detect() Level {
	x := &cpu.X86
	switch {
	case x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX512BF16:
		return AVX512BF16
	case x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL:
		return AVX512
	case x.HasAVX2 && x.HasFMA:
		return AVX2
	default:
		return Scalar
	}
}

// hasTiles reports whether the processor multiplies bfloat16 on tiles, and has what else a product on them uses.
func hasTiles() bool {
	return best == AVX512BF16 && cpu.X86.HasAMXTile && cpu.X86.HasAMXBF16
}

// prefetchSlows reports whether prefetches make kernels slower, as on AMD's processors with
// AVX-512 (Zen 5).
func prefetchSlows() bool {
	const auth = 'A' | 'u'<<8 | 't'<<16 | 'h'<<24 // of AuthenticAMD
	_, vendor, _, _ := cpuid(0)
	return best >= AVX512 && vendor == auth
}
