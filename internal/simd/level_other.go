//go:build !amd64

package simd

func detect() Level { return Scalar }

func hinders() bool { return false }
