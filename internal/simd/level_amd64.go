package simd

import "golang.org/x/sys/cpu"

// neonKernels are none of this machine's.
var neonKernels kernelSet

// detect returns the highest level of this processor, which has all that the levels below need. F16C is not asked for:
// no processor has AVX2 without it.
func detect() Level {
	x := &cpu.X86
	switch {
	case !x.HasAVX2 || !x.HasFMA:
		return Scalar
	case !x.HasAVX512F || !x.HasAVX512BW || !x.HasAVX512DQ || !x.HasAVX512VL:
		return AVX2
	case !x.HasAVX512BF16:
		return AVX512
	default:
		return AVX512BF16
	}
}

// hasTiles reports whether the processor multiplies bfloat16 on tiles, and has what else a product on them uses.
func hasTiles() bool {
	return best == AVX512BF16 && cpu.X86.HasAMXTile && cpu.X86.HasAMXBF16
}

// The first letters of a vendor's name, as a processor gives them.
const (
	amd   = 'A' | 'u'<<8 | 't'<<16 | 'h'<<24 // AuthenticAMD
	intel = 'G' | 'e'<<8 | 'n'<<16 | 'u'<<24 // GenuineIntel
)

// vendor returns the first letters of the vendor's name.
func vendor() uint32 {
	_, name, _, _ := cpuid(0)
	return name
}

// pairsSlow reports whether VDPBF16PS does fewer products in a cycle than the multiply-adds of float32. It does half as
// many on Intel's processors from Sapphire Rapids on, which multiply bfloat16 on tiles; they have AVX-512 FP16, and those
// before them do not. A virtual machine may hide the tiles.
func pairsSlow() bool {
	const fp16 = 1 << 23
	most, _, _, _ := cpuid(0)
	if most < 7 || vendor() != intel {
		return false
	}
	_, _, _, features := cpuid(7)
	return features&fp16 != 0
}

// prefetchSlows reports whether prefetches make kernels slower, as on AMD's processors with
// AVX-512 (Zen 5).
func prefetchSlows() bool { return best >= AVX512 && vendor() == amd }
