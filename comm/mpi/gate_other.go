//go:build linux && !nolibs && !amd64

package mpi

import (
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
)

// staleAfter is for how many ticks a rank makes calls that end at once before it looks
// for control messages.
const staleAfter = 100_000

// ticks is the time in nanoseconds.
func ticks() int64 { return time.Now().UnixNano() }

// pass does what run describes, with a way to C and back for each call.
func (g *gate) pass() {
	for ; g.made < g.n; g.made++ {
		c := &g.list[g.made]
		if code, _, _ := purego.SyscallN(c.entry, c.args[:]...); int32(code) != 0 {
			g.code = uintptr(uint32(code))
			return
		}
	}
	for g.done < g.count && g.looks > 0 {
		q := (*request)(unsafe.Add(g.first, g.done*unsafe.Sizeof(request{})))
		code, _, _ := purego.SyscallN(g.test, pointer(&q.handle), pointer(&q.flag), g.status)
		if int32(code) != 0 {
			g.code = uintptr(uint32(code))
			return
		}
		if q.flag != 0 {
			g.done++
		} else {
			g.looks--
		}
	}
}
