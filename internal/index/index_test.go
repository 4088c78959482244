package index

import (
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/tensor"
)

// counting is a device that counts lists.
type counting struct {
	tensor.Device
	lists []int
}

func (c *counting) Listed(n int) { c.lists = append(c.lists, n) }

// A device that counts is told of each list, and the list is as on another.
func TestListsAreCounted(t *testing.T) {
	c := &counting{Device: tensor.NewCPU(nil)}
	for _, dev := range []tensor.Device{c, tensor.NewCPU(nil)} {
		l := New[int64](dev, 3)
		copy(l.Elems, []int64{7, 5, 6})
		if got := tensor.ToSlice[int64](l.Tensor(dev, 2)); !slices.Equal(got, []int64{7, 5}) {
			t.Errorf("got %v", got)
		}
		New[int32](dev, 4).Free()
	}
	if want := []int{3, 4}; !slices.Equal(c.lists, want) {
		t.Errorf("counted %v, want %v", c.lists, want)
	}
}
