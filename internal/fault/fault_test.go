package fault

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

func try(f func()) (err error) {
	defer Catch(&err)
	f()
	return nil
}

func TestCatchReturnsWhatWasThrown(t *testing.T) {
	want := errors.New("shape")
	if got := try(func() { Throw(want) }); !errors.Is(got, want) {
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

// A nil that the program itself uses is no library's, however many functions let the panic through.
func TestBugOfTheProgramIsNotExplained(t *testing.T) {
	defer func() {
		if r := recover(); r == nil || strings.Contains(fmt.Sprint(r), "in fault.") {
			t.Errorf("got panic %v, want Go's own", r)
		}
	}()
	var none *int
	all := func(f func()) (err error) {
		defer CatchAll(&err)
		f()
		return nil
	}
	if err := all(func() { _ = try(func() { *none = 1 }) }); err == nil || strings.Contains(err.Error(), "in fault.") {
		t.Errorf("got %v, want Go's own", err)
	}
	_ = try(func() { _ = try(func() { _ = try(func() { *none = 1 }) }) })
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

func TestCatchAll(t *testing.T) {
	all := func(f func()) (err error) {
		defer CatchAll(&err)
		f()
		return nil
	}
	want := errors.New("shape")
	if got := all(func() { Throw(want) }); got != want {
		t.Errorf("thrown: got %v, want %v", got, want)
	}
	if got := all(func() { panic("bug") }); got == nil || !strings.Contains(got.Error(), "panic: bug") ||
		!strings.Contains(got.Error(), "TestCatchAll") {
		t.Errorf("panic: got %v", got)
	}
	if got := all(func() {}); got != nil {
		t.Errorf("nothing: got %v", got)
	}
}

// A caught error says which line of the program led to it, once.
func TestCaughtErrorNamesTheLine(t *testing.T) {
	_, _, line, _ := runtime.Caller(0)
	err := try(func() { Throw(errors.New("shape")) })
	if got, want := err.Error(), fmt.Sprintf("shape (at fault/fault_test.go:%d)", line+1); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	text := fmt.Sprintf("comm: Barrier at fault/fault_test.go:%d", line+6)
	if got := try(func() { Throw(errors.New(text)) }).Error(); got != text {
		t.Errorf("got %q, want %q", got, text)
	}
}

// An error has the line at which it began, and no other.
func TestErrorNamesTheInnerLine(t *testing.T) {
	_, _, line, _ := runtime.Caller(0)
	inner := func() (err error) { defer Locate(&err); return errors.New("file") }
	err := try(func() {
		Throw(fmt.Errorf("outer: %w", inner()))
	})
	if got, want := err.Error(), fmt.Sprintf("outer: file (at fault/fault_test.go:%d)", line+1); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err = nil; Located(err) != nil {
		t.Error("no error became one")
	}
}
