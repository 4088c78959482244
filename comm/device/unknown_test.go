package device

import (
	"testing"

	"github.com/gorun-spmd/gorun/comm"
)

func TestNothingIsKnownOfUnknownKinds(t *testing.T) {
	x, y := []float32{1, 2}, []float32{7, 7}
	if bytes, known := largestBuffer(&comm.Call{Kind: comm.Kinds, Dst: comm.Of(y), Src: comm.Of(x)}, 2); known {
		t.Errorf("a call of an unknown kind is said to have at most %d bytes", bytes)
	}
}
