package fault

import (
	"errors"
	"testing"
)

func try(f func()) (err error) {
	defer Catch(&err)
	f()
	return nil
}

func TestCatchReturnsWhatWasThrown(t *testing.T) {
	want := errors.New("shape")
	if got := try(func() { Throw(want) }); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestCatchOfNothingIsNil(t *testing.T) {
	if err := try(func() {}); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}

func TestBugsPassThrough(t *testing.T) {
	defer func() {
		if r := recover(); r != "bug" {
			t.Errorf("got panic %v, want the original", r)
		}
	}()
	_ = try(func() { panic("bug") })
	t.Error("the panic was swallowed")
}

func TestThrowNilIsABug(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Throw(nil) did not panic")
		}
	}()
	_ = try(func() { Throw(nil) })
}
