package index

import (
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/tensor"
)

// What the program writes into a list is what the device reads.
func TestList(t *testing.T) {
	dev := tensor.NewCPU(nil)
	l := New[int64](dev, 3)
	copy(l.Elems, []int64{7, 5, 6})
	if got := tensor.ToSlice[int64](l.Tensor(dev, 2)); !slices.Equal(got, []int64{7, 5}) {
		t.Errorf("got %v", got)
	}
	New[int32](dev, 4).Free()
}
