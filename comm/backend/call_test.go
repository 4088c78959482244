package backend

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/fold"
)

// Code that was not written for a kind or an operation says so, instead of doing what
// it does for another one, or nothing.
func TestUnknownKindsAndOperations(t *testing.T) {
	call := Call{Kind: Kinds, Dst: floats(2), Src: floats(2)}
	_, problem := call.Problem(0, 1)
	for name, err := range map[string]error{
		"Problem":     problem,
		"checkCounts": call.checkCounts(0, 1),
		"Carried":     call.Carried("test", 1<<PatternReduce),
	} {
		if err == nil || !strings.Contains(err.Error(), Kinds.String()) {
			t.Errorf("%s: got %v, want an error that names %v", name, err, Kinds)
		}
	}
	if err := (&Call{Kind: BarrierKind}).Carried("test", 1<<PatternBarrier); err != nil {
		t.Errorf("a kind that is carried out: %v", err)
	}
	for _, n := range []int{1, 100} {
		func() {
			defer func() {
				if p := fmt.Sprint(recover()); !strings.Contains(p, fmt.Sprintf("operation %d ", fold.Custom+1)) {
					t.Errorf("a fold of %d elements by an unknown operation: panic %q", n, p)
				}
			}()
			call := Call{Kind: AllReduceKind, Op: fold.Custom + 1, Dst: floats(n), Src: floats(n)}
			dst := call.Dst.Ptr
			call.Fold([]unsafe.Pointer{dst}, []unsafe.Pointer{dst, call.Src.Ptr}, n)
		}()
	}
}

// floats returns a buffer of n zeros.
func floats(n int) Buffer {
	return Buffer{Ptr: unsafe.Pointer(unsafe.SliceData(make([]float32, n))), Count: n, DType: dtype.Float32}
}
