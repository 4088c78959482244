//go:build !linux

package mem

import "unsafe"

// preferHuge does nothing: this system is not asked for huge pages.
func preferHuge(unsafe.Pointer, int) {}

// Populate touches every page of p[:bytes] once, so that the first use does not
// fault. It keeps the contents. p must be page-aligned.
func Populate(p unsafe.Pointer, bytes int) { touch(p, bytes) }
