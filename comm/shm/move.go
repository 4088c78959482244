package shm

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// move copies n bytes.
func move(dst, src unsafe.Pointer, n int) {
	simd.Copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
}

// Rows of something of aheadBytes are copied as a piece of it if they are of aheadRun.
const (
	aheadBytes = 1 << 20
	aheadRun   = 512
)

// moveRuns copies n bytes of src from byte j on to byte i of dst on.
func moveRuns(dst comm.Part, i int, src comm.Part, j, n int) {
	ahead := n >= aheadBytes
	for end := i + n; i < end; {
		d, run := dst.Run(i, end-i)
		s, run := src.Run(j, run)
		if to, from := unsafe.Slice((*byte)(d), run), unsafe.Slice((*byte)(s), run); ahead && run >= aheadRun {
			simd.CopyAhead(to, from)
		} else {
			copy(to, from)
		}
		i, j = i+run, j+run
	}
}
