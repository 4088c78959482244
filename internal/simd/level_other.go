//go:build !amd64

package simd

func detect() Level { return Scalar }

func streams() bool { return false }
