//go:build linux && !nolibs

package mpi

import "unsafe"

// gateCalls and gateArgs are the most calls that a gate holds, and arguments of one.
const (
	gateCalls = 16
	gateArgs  = 10
)

// A gate is a list of MPI calls, and then of looks at requests, that are made one
// after the other without coming back to Go between them: going to C and back
// costs as much as most of these calls. gate_amd64.s knows its layout.
type gate struct {
	n      uintptr        // calls in list
	made   uintptr        // of them, without an error
	first  unsafe.Pointer // the requests to look at, in order
	count  uintptr        // of them
	done   uintptr        // of them, those that have ended
	looks  uintptr        // left that find their request not ended
	test   uintptr        // MPI_Test
	status uintptr        // its last argument
	code   uintptr        // what the call or look that failed has returned; 0: none has
	list   [gateCalls]gateCall
}

// A gateCall is one function with its arguments.
type gateCall struct {
	entry uintptr
	args  [gateArgs]uintptr
	f     function
	at    int // the request that the call makes, an index
	slot  int // the argument that is the request's address
}

// add puts a call at the end of the list: f with args and the address of request at.
func (g *gate) add(l *library, f function, at int, args []uintptr) {
	c := &g.list[g.n]
	c.entry, c.f, c.at, c.slot = l.entry[f], f, at, len(args)
	copy(c.args[:], args)
	g.n++
}

// run makes the calls and looks at the requests that have not ended, from the first on,
// in order, until it has looked that often in vain. It empties the list. The job's lock is
// held.
func (g *gate) run(l *library, requests []request, done, looks int) (ended int, err error) {
	for i := range g.list[:g.n] {
		c := &g.list[i]
		c.args[c.slot] = pointer(&requests[c.at].handle)
	}
	g.made, g.code = 0, 0
	g.first, g.count, g.done, g.looks = unsafe.Pointer(unsafe.SliceData(requests)), uintptr(len(requests)), uintptr(done), uintptr(looks)
	g.test, g.status = l.entry[test], l.statusIgnore
	g.pass()
	ended = int(g.done)
	if g.code != 0 {
		f := test
		if g.made < g.n {
			f = g.list[g.made].f
			for _, c := range g.list[g.made:g.n] { // no requests were made
				requests[c.at].done = true
			}
		} else {
			requests[g.done].done = true
		}
		err = l.failure(f, int32(g.code))
	}
	for i := done; i < ended; i++ {
		requests[i].done = true
	}
	g.n = 0
	return ended, err
}
