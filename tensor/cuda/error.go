package cuda

import (
	"fmt"
	"strings"
	"sync"
)

// An Error is a failed call of the driver. A failed kernel shows in a later call.
type Error struct {
	Rank    int      // of the rank whose device it is; -1 if none is known
	Device  string   // "cuda:0 (NVIDIA H200)"
	Call    string   // the function that returned the code
	Kernels []string // the last kernels queued before the call, newest first; one with GORUN_CUDA_SYNC=1
	Code    int      // CUresult
	Name    string   // "CUDA_ERROR_ILLEGAL_ADDRESS"
	Text    string   // the driver's description
}

// Error gives all of it in one line.
func (e *Error) Error() string {
	var s strings.Builder
	s.WriteString("cuda: ")
	if e.Rank >= 0 {
		fmt.Fprintf(&s, "rank %d: ", e.Rank)
	}
	if e.Device != "" {
		s.WriteString(e.Device + ": ")
	}
	fmt.Fprintf(&s, "%s: %s (%s, error %d)", e.Call, e.Text, e.Name, e.Code)
	switch len(e.Kernels) {
	case 0:
	case 1:
		s.WriteString("; in kernel " + e.Kernels[0])
	default:
		s.WriteString("; the last kernels before were " + strings.Join(e.Kernels, ", ") + ": run with GORUN_CUDA_SYNC=1 to learn which")
	}
	return s.String()
}

// A MemoryError says that a device has no memory for an allocation.
type MemoryError struct {
	Rank        int
	Device      string
	Bytes       int // asked for
	Mine        int // held by this rank's tensors and their pool
	Others      int // held by others: other ranks, other programs, the driver
	Free, Total int
}

// Error gives all of it in one line.
func (e *MemoryError) Error() string {
	return fmt.Sprintf("cuda: rank %d: %s is out of memory: %d bytes asked for, %d of %d free; this rank holds %d, others %d: "+
		"use a smaller batch, more ranks, or fewer ranks a device",
		e.Rank, e.Device, e.Bytes, e.Free, e.Total, e.Mine, e.Others)
}

// recent are the last kernels that were queued. A failed copy of a Stage lists them from
// another goroutine than the one that adds to them.
type recent struct {
	mu    sync.Mutex
	names [4]string
	at    int // names[at] comes next
}

func (r *recent) add(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names[r.at] = name
	r.at = (r.at + 1) % len(r.names)
}

// list returns them, the newest first.
func (r *recent) list() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.names)
	for k := range n {
		if name := r.names[(r.at-1-k+n)%n]; name != "" {
			names = append(names, name)
		}
	}
	return names
}
