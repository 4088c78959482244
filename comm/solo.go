package comm

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/mem"
	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/internal/stack"
)

// solo is the backend of a group of one rank: a collective copies Src to Dst, if Dst is used.
type solo struct {
	world   int // its rank's world number
	aborted atomic.Pointer[AbortError]
}

// soloPatterns are the patterns that solo carries out: the collectives.
const soloPatterns = 1<<backend.PatternBarrier | 1<<backend.PatternMove | 1<<backend.PatternReduce |
	1<<backend.PatternReduceScatter | 1<<backend.PatternScan

func (s *solo) Rank() int { return 0 }
func (s *solo) Size() int { return 1 }

func (s *solo) Do(_ context.Context, call *Call) error {
	if e := s.aborted.Load(); e != nil {
		return e
	}
	if err := call.Carried("comm, in a group of one rank,", soloPatterns); err != nil {
		return err
	}
	if call.Src.Count > 0 && call.Dst.Ptr != call.Src.Ptr && call.Fills(0, 1) {
		simd.Copy(call.Dst.Data(), call.Src.Data())
	}
	return nil
}

func (s *solo) Split(context.Context, []int) (Backend, error) { return nil, nil }

func (s *solo) Abort(cause error) {
	s.aborted.CompareAndSwap(nil, &AbortError{Rank: s.world, Cause: cause.Error(), Err: cause})
}

func (s *solo) Memory() mem.Allocator { return nil }

// soloWindow is the memory of a window of one rank.
type soloWindow []uint64

func (w soloWindow) Address(int) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(w)) }
func (w soloWindow) Close() error               { return nil }

func (s *solo) OpenWindow(_ context.Context, bytes []int) (backend.WindowMemory, error) {
	return make(soloWindow, (bytes[0]+7)/8), nil
}

func (s *solo) Touch(Kind, int) error {
	if e := s.aborted.Load(); e != nil {
		return e
	}
	return nil
}

// Broken returns what has ended the group.
func (s *solo) Broken() error { return s.Touch(Invalid, 0) }

// Export and Import name memory by its address.
func (s *solo) Export(p unsafe.Pointer, _ int) (at uint64, ok bool) { return uint64(uintptr(p)), true }

func (s *solo) Import(_ int, at uint64, _ int) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&at))
}

// Ended reports false: the only rank is the one that asks.
func (s *solo) Ended(int) (cause string, ended bool) { return "", false }

// Moved does nothing: no other rank waits.
func (s *solo) Moved() {}

// soloLooks is how many milliseconds a wait lasts between two looks at whether a goroutine can end it.
const soloLooks = 3000

// Await waits for another goroutine of this rank.
func (s *solo) Await(ctx context.Context, call *Call, on func() (int, error)) error {
	for i := 1; ; i++ {
		if rank, err := on(); rank < 0 || err != nil {
			return err
		}
		if err := s.Touch(call.Kind, 0); err != nil {
			return err
		}
		if cause := backend.Cancelled(ctx); cause != nil {
			s.Abort(cause)
			return cause
		}
		if i%soloLooks == 0 && stack.Acting() == "" {
			err := errors.New("the only rank waits for itself, and none of its goroutines can do more; make first the call that ends this one")
			s.Abort(err)
			return err
		}
		time.Sleep(time.Millisecond)
	}
}
