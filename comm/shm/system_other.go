//go:build !linux

package shm

import (
	goruntime "runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// Ranks are processes on Linux alone: control.Open returns an error elsewhere. These functions
// let the package compile.

func wakeAll(*atomic.Uint32) {}

func sleepWhile(_ *atomic.Uint32, _ uint32, most time.Duration) (late bool) {
	time.Sleep(most)
	return true
}

func giveBack(unsafe.Pointer, int) {}

func (r *Rank) yield() { goruntime.Gosched() }

func osYield() { goruntime.Gosched() }
