//go:build linux

package launcher

import (
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/launcher/options"
	"github.com/gorun-spmd/gorun/launcher/supervisor"
	"github.com/gorun-spmd/gorun/launcher/watchdog"
)

// FuzzSegment has a rank write anything into the segment, which the launcher then reads.
func FuzzSegment(f *testing.F) {
	f.Add([]byte{0xff}, uint32(0))
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x00"), uint32(64))
	f.Fuzz(func(t *testing.T, garbage []byte, at uint32) {
		const ranks, size = 3, 1 << 18
		segment, err := control.Create(ranks, control.Options{ArenaBytes: 4096})
		if err != nil {
			t.Fatal(err)
		}
		defer segment.Close()
		base, err := unix.MmapPtr(int(segment.Files()[0].Fd()), 0, nil, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.MunmapPtr(base, size) }()
		if len(garbage) > 0 {
			data := unsafe.Slice((*byte)(base), size)[4096:]
			for i := int(at) % len(data); i < len(data); i++ {
				data[i] = garbage[i%len(garbage)]
			}
		}
		a := &attempt{opts: &options.Options{HangTimeout: time.Second}, segment: segment, plan: &plan{ranks: make([]place, ranks)}}
		dog := a.newWatchdog(&supervisor.Supervisor{Outcome: supervisor.Outcome{Ends: make([]supervisor.End, ranks)}})
		dog.Busy = func([]int) bool { return false } // the ranks have no processes
		dog.Circles = true
		now := time.Now()
		for range 3 {
			now = now.Add(watchdog.Interval)
			if h := dog.Look(now, ranks); h != nil {
				_ = h.Why() + h.Table(segment, now)
			}
		}
		_, _ = first(make([]supervisor.End, ranks), now, segment.Error)
	})
}
