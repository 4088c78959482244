package comm_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/mem"
)

// A carrier is a Backend that carries out calls by a function.
type carrier struct {
	comm.Backend
	do func(*comm.Call) error
}

func (b carrier) Do(_ context.Context, call *comm.Call) error { return b.do(call) }

// TestStartedCallsNeedNoSecondProcessor: on one processor a call has begun when Start returns, and
// one that rests gives the processor away until somebody waits for it.
func TestStartedCallsNeedNoSecondProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	begun, rested := false, false
	c := comm.NewWorld(carrier{mem.Open(2)[0], func(call *comm.Call) error {
		begun = true
		for !call.Attended() {
			call.Rest(time.Hour)
			rested = true
		}
		return nil
	}})
	started := c.Internals().Started()
	p := c.Start(t.Context(), comm.Call{Kind: comm.BarrierKind})
	if !begun || rested || started.Load() != 1 {
		t.Fatalf("begun %v, rested %v, %d started; want true, false, 1", begun, rested, started.Load())
	}
	select {
	case <-p.Done():
		t.Error("the call ended before somebody waited for it")
	case <-time.After(10 * time.Millisecond):
	}
	if err := p.Wait(); err != nil || !rested || started.Load() != 0 {
		t.Errorf("%v, rested %v, %d started; want nil, true, 0", err, rested, started.Load())
	}
}

// TestRest: a call that nobody waits for rests as long as it says.
func TestRest(t *testing.T) {
	rests := 0
	c := comm.NewWorld(carrier{mem.Open(2)[0], func(call *comm.Call) error {
		for range 3 {
			start := time.Now()
			if call.Rest(time.Millisecond); time.Since(start) < time.Millisecond {
				return errors.New("it rested for less than a millisecond")
			}
			rests++
		}
		return nil
	}})
	p := c.Start(t.Context(), comm.Call{Kind: comm.BarrierKind})
	<-p.Done()
	if err := p.Wait(); err != nil || rests != 3 {
		t.Error(rests, err)
	}
}
