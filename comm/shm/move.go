package shm

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// aheadBytes is from how many bytes on a copy asks ahead for what it needs.
const (
	aheadBytes = 64 << 10
	aheadRun   = 512 // of rows of something that large
)

// move copies n bytes.
func move(dst, src unsafe.Pointer, n int) {
	d, s := unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n)
	if n >= aheadBytes {
		simd.CopyAhead(d, s)
		return
	}
	copy(d, s)
}

// moveRuns copies n bytes of src from byte j on to byte i of dst on.
func moveRuns(dst comm.Part, i int, src comm.Part, j, n int) {
	ahead := n >= aheadBytes
	for end := i + n; i < end; {
		d, run := dst.Run(i, end-i)
		s, run := src.Run(j, run)
		switch to, from := unsafe.Slice((*byte)(d), run), unsafe.Slice((*byte)(s), run); {
		case ahead && run >= aheadRun:
			simd.CopyAhead(to, from)
		default:
			copy(to, from)
		}
		i, j = i+run, j+run
	}
}
