package shm

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The operations of futex(2), for memory shared between processes.
const (
	futexWait = 0
	futexWake = 1
)

// wakeAll wakes the ranks that sleep on word.
func wakeAll(word *atomic.Uint32) {
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, 1<<30, 0, 0, 0)
}

// sleepWhile sleeps until wakeAll is called for word, at most for a time; late says that the
// time has passed. It returns at once if word does not have the value.
func sleepWhile(word *atomic.Uint32, value uint32, most time.Duration) (late bool) {
	timeout := unix.NsecToTimespec(int64(most))
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(value),
		uintptr(unsafe.Pointer(&timeout)), 0, 0)
	return errno == unix.ETIMEDOUT
}

// giveBack advises the kernel to take the pages of shared memory back.
func giveBack(p unsafe.Pointer, bytes int) {
	_ = unix.Madvise(unsafe.Slice((*byte)(p), bytes), unix.MADV_REMOVE)
}
