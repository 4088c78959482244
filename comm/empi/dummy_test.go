//go:build empi && !mpi

package empi

import (
	"strings"
	"testing"
)

// Without the tag mpi the binding is a dummy.
func TestDummy(t *testing.T) {
	if _, err := Open(0); err == nil || !strings.Contains(err.Error(), "-tags empi,mpi") {
		t.Errorf("got %v, want how to build", err)
	}
}
