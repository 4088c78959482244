package comm_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
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
	var begun, rested atomic.Bool
	c := comm.NewWorld(carrier{mem.Open(2)[0], func(call *comm.Call) error {
		begun.Store(true)
		for !call.Attended() {
			call.Rest(time.Hour)
			rested.Store(true)
		}
		return nil
	}})
	started, atOnce := c.Internals().Started(), 0
	for range 20 {
		begun.Store(false)
		rested.Store(false)
		p := c.Start(t.Context(), comm.Call{Kind: comm.BarrierKind})
		if begun.Load() {
			atOnce++
		}
		if rested.Load() || started.Load() != 1 {
			t.Fatalf("rested %v, %d started; want false, 1", rested.Load(), started.Load())
		}
		select {
		case <-p.Done():
			t.Error("the call ended before somebody waited for it")
		case <-time.After(2 * time.Millisecond):
		}
		if err := p.Wait(); err != nil || !rested.Load() || started.Load() != 0 {
			t.Errorf("%v, rested %v, %d started; want nil, true, 0", err, rested.Load(), started.Load())
		}
	}
	if atOnce < 15 { // the scheduler now and then lets the goroutine that gives way go on
		t.Errorf("%d of 20 calls had begun when Start returned", atOnce)
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
