//go:build !amd64 && !arm64

package simd

// neonKernels are none of these machines'.
const neonKernels kernelSet = 0

func detect() Level { return Scalar }

func hasTiles() bool { return false }

func pairsSlow() bool { return false }

func prefetchSlows() bool { return false }
