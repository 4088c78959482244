//go:build linux && !nolibs

package mpi

import (
	"unsafe"

	_ "github.com/ebitengine/purego" // makes cgocall work without cgo
)

// throughABI0 is the address of a C function of a *gate, in gate_amd64.s.
var throughABI0 unsafe.Pointer

// cgocall calls a C function on a thread's own stack, as purego does.
//
//go:linkname cgocall runtime.cgocall
//go:noescape
func cgocall(fn, arg unsafe.Pointer) int32

// staleAfter is for how many ticks a rank makes calls that end at once before it looks
// for control messages: some 100 µs.
const staleAfter = 250_000

// ticks is the processor's time stamp counter, in gate_amd64.s. To read a clock takes a
// good part of the time of a small call.
func ticks() int64

// pass does what run describes.
func (g *gate) pass() { cgocall(throughABI0, unsafe.Pointer(g)) }
