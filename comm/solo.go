package comm

import (
	"context"
	"sync/atomic"

	"github.com/gorun-spmd/gorun/internal/mem"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// solo is the backend of a group of one: every collective is a copy.
type solo struct {
	world   int // its rank's world number
	aborted atomic.Pointer[AbortError]
}

func (s *solo) Rank() int { return 0 }
func (s *solo) Size() int { return 1 }

func (s *solo) Do(_ context.Context, call *Call) error {
	if e := s.aborted.Load(); e != nil {
		return e
	}
	if call.Src.Count > 0 && call.Dst.Ptr != call.Src.Ptr {
		simd.Copy(call.Dst.Data(), call.Src.Data())
	}
	return nil
}

func (s *solo) Split(context.Context, []int) (Backend, error) { return nil, nil }

func (s *solo) Abort(cause error) {
	s.aborted.CompareAndSwap(nil, &AbortError{Rank: s.world, Cause: cause.Error(), Err: cause})
}

func (s *solo) Memory() mem.Allocator { return nil }
