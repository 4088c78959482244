//go:build !linux

package mem

import "unsafe"

// preferHuge does nothing: here huge pages are not asked for.
func preferHuge(unsafe.Pointer, int) {}

// Populate touches every page of p[:bytes] once, so that the first use does not
// fault. It keeps the contents. p must be page-aligned.
func Populate(p unsafe.Pointer, bytes int) { touch(p, bytes) }
