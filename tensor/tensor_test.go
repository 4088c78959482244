package tensor

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/internal/fault"
)

// try runs f and returns what it throws.
func try(f func()) (err error) {
	defer fault.Catch(&err)
	f()
	return nil
}

// wantThrow checks that f throws an error of type E whose text has every word.
func wantThrow[E error](t *testing.T, f func(), words ...string) {
	t.Helper()
	err := try(f)
	if _, ok := errors.AsType[E](err); !ok {
		t.Errorf("threw %T %v, want %T", err, err, *new(E))
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not contain %q", err, w)
		}
	}
}

func TestScopeKeepsAndCloses(t *testing.T) {
	cpu := NewCPU(nil)
	s := cpu.Open()
	a, b := Full(cpu, Float32, 3, 100), Full(cpu, Float32, 4, 100)
	view := b.Reshape(10, 10)
	s.Keep(b)
	s.Close()
	live := cpu.Stats().Live
	wantThrow[*UseError](t, func() { Data[float32](a) }, "float32[100]", "scope closed", "Keep")
	wantThrow[*UseError](t, func() { Add(a, b) }, "Add")
	if Data[float32](view)[99] != 4 {
		t.Error("a view of a kept tensor lost its memory")
	}
	if live == 0 || live > 512 {
		t.Errorf("%d bytes live, want those of one tensor", live)
	}
}

func TestBroadcastAdd(t *testing.T) {
	cpu := NewCPU(nil)
	a := FromSlice(cpu, []float64{1, 2, 3}, 3, 1)
	b := FromSlice(cpu, []float64{10, 20}, 2)
	if got, want := Data[float64](Add(a, b)), []float64{11, 21, 12, 22, 13, 23}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := Sum(Add(a, b), nil, false).Item(); math.Abs(got-102) > 0 {
		t.Errorf("sum %v", got)
	}
	wantThrow[*ShapeError](t, func() { Add(a, FromSlice(cpu, []float64{1, 2}, 2, 1)) }, "float64[3 1]", "3", "2")
}
