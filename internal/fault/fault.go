// Package fault carries errors out of operators, which return values and no errors.
//
// An operator throws a typed error with Throw. One of a few functions
// (dtensor.ValueAndGrad, dtensor.Try, runtime.Main) turns it back into an ordinary error
// with a deferred Catch. A bug (nil, index out of range) is a plain panic and passes
// through Catch with its stack. Only a function that runs independent cases one after
// another uses CatchAll, which makes a bug the failure of one case.
package fault

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/gorun-spmd/gorun/internal/stack"
)

// thrown wraps a thrown error so that no other panic can be mistaken for it.
type thrown struct {
	err error
	at  site
}

// Error makes an uncaught throw readable in the panic message.
func (t thrown) Error() string {
	return t.err.Error() + " (thrown outside ValueAndGrad, Try and runtime.Main)"
}

// Unwrap returns the error that was thrown.
func (t thrown) Unwrap() error { return t.err }

// Throw unwinds the caller with err. It never returns. err must not be nil.
func Throw(err error) {
	if err == nil {
		panic("fault: Throw(nil)")
	}
	var at site
	runtime.Callers(2, at[:])
	panic(thrown{err, at})
}

// Catch stores a thrown error in *err; any other panic continues. The error's
// text then ends in the line of the program that led to it, unless it names one already, and
// errors.As and errors.Is find the thrown error. It must be deferred directly:
// defer fault.Catch(&err).
func Catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case thrown:
		*err = located(r)
	default:
		panic(explain(r))
	}
}

// Located returns an error that is returned, not thrown, with the line of the program that led to it, as
// Catch adds it; nil if err is.
func Located(err error) error {
	if err == nil {
		return nil
	}
	var at site
	runtime.Callers(2, at[:])
	return located(thrown{err, at})
}

// Locate adds the line of the program to the error that a function returns, as Located does. It is for the functions that
// programs call, and is deferred in their first line: defer fault.Locate(&err).
func Locate(err *error) {
	if *err != nil {
		var at site
		runtime.Callers(2, at[:])
		*err = located(thrown{*err, at})
	}
}

// CatchAll is Catch that also turns any other panic into an error with its stack.
func CatchAll(err *error) {
	switch r := recover().(type) {
	case nil:
	case thrown:
		*err = r.err
	default:
		*err = fmt.Errorf("panic: %v\n%s", explain(r), debug.Stack())
	}
}

// An explained is a panic of Go's own in a library of this module, with the program's call that led to it.
type explained struct {
	err        runtime.Error
	call, line string
}

// Error names the call, and what a program may have to change.
func (e explained) Error() string {
	return fmt.Sprintf("%v in %s (at %s): what the call is made on or with is nil, out of range, or a zero value where one that a function "+
		"of the package makes is needed; if it is none of these, it is a bug of %[2]s", e.err, e.call, e.line)
}

// RuntimeError makes it what it was.
func (e explained) RuntimeError() {}

// Unwrap returns the panic that was explained.
func (e explained) Unwrap() error { return e.err }

// explain returns what to panic with for r, which a panic has that is still under way.
func explain(r any) any {
	e, ok := r.(runtime.Error)
	if _, is := r.(explained); !ok || is {
		return r
	}
	var pcs [64]uintptr
	n := runtime.Callers(2, pcs[:])
	for k := range n { // what is before the panic is Catch, and so is what lets a panic continue: a Catch inside this one
		if function(pcs[k]) == "runtime.gopanic" && (k+1 == n || !strings.HasSuffix(function(pcs[k+1]), "/internal/fault.Catch")) {
			if call, line := stack.Entry(pcs[k:n]); call != "" {
				return explained{e, call, line}
			}
			break
		}
	}
	return r
}

// function returns the name of the function that the return address pc is in.
func function(pc uintptr) string {
	if f := runtime.FuncForPC(pc - 1); f != nil {
		return f.Name()
	}
	return ""
}
