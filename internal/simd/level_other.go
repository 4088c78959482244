//go:build !amd64 && !arm64

package simd

// neonKernels are none of these machines'.
var neonKernels kernelSet

func detect() Level { return Scalar }

func hasTiles() bool { return false }

func pairsSlow() bool { return false }

func prefetchSlows() bool { return false }
