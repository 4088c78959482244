//go:build !amd64

package simd

func detect() Level { return Scalar }

func prefetchSlows() bool { return false }
