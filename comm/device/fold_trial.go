package device

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/fold"
)

// TryFold finds out whether the ranks' devices fold as Call.Fold does. If they do, they fold the
// reductions of device memory in this world, except those by a Func. A piece has at most piece
// bytes, and with windows at most half a slot. Two calls can run at once; for each the device
// keeps room for one piece, or for two where addresses are used. All ranks of the world c call
// TryFold after TryDirect or TryPeers, before any call on device memory. They come to the same
// answer.
//
// problem says why this rank has no such device, "" if it may have one. reason says why
// devices do not fold, "" if they do.
func TryFold(ctx context.Context, c *comm.Comm, problem string, piece int) (reason string, err error) {
	s := inUse(c).Load()
	f := &folds{piece: max(piece, c.Size()*dtype.Float64.Size())}
	f.bytes = 2 * f.piece
	switch {
	case problem != "":
	case s == nil:
		problem = "it has no device"
	case !s.direct.Load() && s.windows.Load() == nil:
		problem = "devices exchange no memory"
	default:
		if w := s.windows.Load(); w != nil {
			f.piece = min(f.piece, w.half)
			f.bytes = f.piece
		}
		if err := s.tryFolds(f); err != nil {
			problem = "a trial failed: " + err.Error()
		}
	}
	if reason, err = firstProblem(ctx, c, problem, false); err != nil || reason != "" {
		if s != nil {
			f.free(s.stage)
		}
		return reason, err
	}
	s.folds.Store(f)
	return "", nil
}

// free gives the rooms back.
func (f *folds) free(s Stage) {
	for _, p := range f.rooms {
		if p != nil {
			s.Free(p, f.bytes)
		}
	}
}

// How many elements, and of how many ranks, the trial folds.
const (
	triedElems = 61
	triedRanks = 3
)

// tryFolds allocates the rooms, and compares folds by the device with folds by this process.
func (s *staging) tryFolds(f *folds) error {
	for i := range f.rooms {
		var err error
		if f.rooms[i], err = s.stage.Alloc(f.bytes); err != nil {
			return err
		}
	}
	return s.copies(func(c Copies) error {
		for d := dtype.Float32; d.Valid(); d++ {
			for op := fold.Sum; op <= fold.Xor; op++ {
				if op.Accepts(d) != nil {
					continue
				}
				if err := tryFold(c, f, op, d); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func tryFold(copies Copies, f *folds, op backend.Op, d backend.DType) error {
	n := max(1, min(triedElems, f.bytes/((triedRanks+1)*d.Size())))
	src, got, want := make([]byte, triedRanks*n*d.Size()), make([]byte, n*d.Size()), make([]byte, n*d.Size())
	fillTrial(src, int(op), len(src))
	for i := range src {
		switch {
		case d == dtype.Bool:
			src[i] &= 1
		case d.Float() && i%d.Size() == d.Size()-1:
			src[i] &^= 0x40 // below 2, and so no NaN, whose bits may differ
		}
	}
	var srcs []unsafe.Pointer
	for r := range triedRanks {
		srcs = append(srcs, unsafe.Pointer(&src[r*len(want)]))
	}
	call := backend.Call{Kind: backend.AllReduceKind, Op: op, Src: backend.Buffer{DType: d}}
	call.Fold([]unsafe.Pointer{unsafe.Pointer(&want[0])}, srcs, n)

	room := f.rooms[0]
	result := backend.Buffer{Ptr: unsafe.Add(room, len(src)), Count: n, DType: d}
	if err := copies.FromHost(0, room, unsafe.Pointer(&src[0]), len(src)); err != nil {
		return err
	}
	if err := copies.Fold(0, op, result, room, triedRanks); err != nil {
		return err
	}
	if err := copies.ToHost(0, unsafe.Pointer(&got[0]), result.Ptr, len(got)); err != nil {
		return err
	}
	err := copies.Wait(0)
	runtime.KeepAlive(src) // it was read meanwhile
	if err != nil {
		return err
	}
	for i := 0; i < len(got); i += d.Size() {
		if a, b := got[i:i+d.Size()], want[i:i+d.Size()]; !bytes.Equal(a, b) {
			return fmt.Errorf("%v of %v of %d ranks: element %d has the bytes %x on the device, %x here", op, d, triedRanks, i/d.Size(), a, b)
		}
	}
	return nil
}
