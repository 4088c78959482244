//go:build !linux

package shm

import (
	goruntime "runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// Ranks that are processes are Linux's alone: control.Open returns an error elsewhere. What
// follows keeps the package compiling.

func wakeAll(*atomic.Uint32) {}

func sleepWhile(_ *atomic.Uint32, _ uint32, most time.Duration) (late bool) {
	time.Sleep(most)
	return true
}

func giveBack(unsafe.Pointer, int) {}

func (r *Rank) yield() { goruntime.Gosched() }
