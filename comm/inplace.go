package comm

import (
	"fmt"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// separate gives a call in place two buffers that do not overlap, for the backend. Where ranks
// read each other's memory, gathers and scatters need none: nobody writes what another reads.
func (c *Comm) separate(call *Call) error {
	s := call.Kind.Shape()
	d, ok := c.carrier().(backend.DeviceHolder)
	n, without := c.backend.(backend.NumberlessBackend)
	switch {
	case without && n.Numberless(call.Dst.Ptr): // nothing moves
	case ok && d.Holds(call.Dst.Ptr):
		return fmt.Errorf("%v in place is not for device memory; give two separate buffers", call.Kind)
	case s.Pattern == backend.PatternMove && (s.Dst == backend.Whole || s.Src == backend.Whole) && c.Internals().SupportsRows():
	case s.Root == backend.RootSends:
		call.Dst = c.copyOf(call.Dst) // its elements are in place already
	default:
		call.Src = c.copyOf(call.Src)
	}
	return nil
}

// copyOf returns a copy of b, which lasts until the next call.
func (c *Comm) copyOf(b Buffer) Buffer {
	if words := (b.Bytes() + 7) / 8; len(c.scratch) < words {
		c.scratch = make([]uint64, words)
	}
	data := b.Data()
	b.Ptr = unsafe.Pointer(unsafe.SliceData(c.scratch))
	simd.Copy(b.Data(), data)
	return b
}
