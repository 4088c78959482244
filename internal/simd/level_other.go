//go:build !amd64

package simd

func detect() level { return scalar }
