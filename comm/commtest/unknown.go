package commtest

import (
	"context"
	"fmt"
	"strings"

	"github.com/gorun-spmd/gorun/comm"
)

// UnknownKind checks that a backend refuses a kind of call that was made after it: with
// an error that names it, and Dst as it was. The backend cannot be used afterwards.
func UnknownKind(ctx context.Context, b comm.Backend) error {
	for _, count := range []int{1, 1 << 16} { // small and large calls differ within backends
		src, dst := make([]float32, count), make([]float32, count)
		dst[0] = 7
		err := b.Do(ctx, &comm.Call{Kind: comm.Kinds, Dst: comm.Of(dst), Src: comm.Of(src)})
		if name := fmt.Sprintf("Kind(%d)", comm.Kinds); err == nil || !strings.Contains(err.Error(), name) {
			return fmt.Errorf("a call of %d elements: got %v, want an error that names %s", count, err, name)
		}
		if dst[0] != 7 {
			return fmt.Errorf("a call of %d elements changed dst", count)
		}
	}
	return nil
}
