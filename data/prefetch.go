package data

import (
	"errors"
	"sync"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// A Prefetcher loads the data of the next steps while this one computes, on a goroutine of its own.
type Prefetcher[T any] struct {
	results chan result[T]
	stop    chan struct{}
	close   sync.Once
}

type result[T any] struct {
	value T
	err   error
}

// Prefetch calls load for the steps first, first+1, … in order, and stays at most ahead steps before
// Next. load runs concurrently with the program, so it must not communicate with other ranks or
// share data with the program. After its first error, which it may throw too, it is not called again.
func Prefetch[T any](first, ahead int, load func(step int) (T, error)) *Prefetcher[T] {
	if load == nil {
		dtensor.Throw(errors.New("data: Prefetch: load is nil; give the function that loads a step"))
	}
	p := &Prefetcher[T]{results: make(chan result[T], max(0, ahead-1)), stop: make(chan struct{})}
	go func() {
		var r result[T]
		for step := first; ; step++ {
			if r.err == nil {
				r.value, r.err = caught(load, step)
			}
			select {
			case p.results <- r:
			case <-p.stop:
				return
			}
		}
	}()
	return p
}

// caught returns what load throws as its error.
func caught[T any](load func(step int) (T, error), step int) (value T, err error) {
	defer fault.Catch(&err)
	return load(step)
}

// Next returns load's result for the next step. After an error it returns the same again, and after
// Close an error.
func (p *Prefetcher[T]) Next() (value T, err error) {
	select {
	case r := <-p.results:
		value, err = r.value, r.err
	case <-p.stop:
	}
	select {
	case <-p.stop:
		err = errors.New("data: Prefetcher.Next after Close")
	default:
	}
	return value, err
}

// Close ends the goroutine when it has loaded its present step.
func (p *Prefetcher[T]) Close() { p.close.Do(func() { close(p.stop) }) }
