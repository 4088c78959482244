package data

// A Prefetcher loads the data of the next steps while this one computes, on a goroutine of its own.
type Prefetcher[T any] struct {
	results chan result[T]
	stop    chan struct{}
}

type result[T any] struct {
	value T
	err   error
}

// Prefetch calls load for the steps first, first+1, … in order, and stays at most ahead steps before
// Next. load runs concurrently with the program, so it must not communicate with other ranks or
// share data with the program.
func Prefetch[T any](first, ahead int, load func(step int) (T, error)) *Prefetcher[T] {
	p := &Prefetcher[T]{make(chan result[T], max(0, ahead-1)), make(chan struct{})}
	go func() {
		for step := first; ; step++ {
			value, err := load(step)
			select {
			case p.results <- result[T]{value, err}:
			case <-p.stop:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return p
}

// Next returns load's result for the next step. It must not be called after an error.
func (p *Prefetcher[T]) Next() (T, error) {
	r := <-p.results
	return r.value, r.err
}

// Close ends the goroutine when it has loaded its present step. Next must not be called after Close.
func (p *Prefetcher[T]) Close() { close(p.stop) }
