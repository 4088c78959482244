package data

// A Prefetcher loads what the next steps need while this one computes, on a goroutine of its own.
type Prefetcher[T any] struct {
	results chan result[T]
	stop    chan struct{}
}

type result[T any] struct {
	value T
	err   error
}

// Prefetch calls load for the steps first, first+1, … in order, up to ahead of them before they are
// asked for. load runs beside the program, so it must not communicate with other ranks, and what it
// uses is its own.
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

// Next returns what load made of the next step. After an error there is no next.
func (p *Prefetcher[T]) Next() (T, error) {
	r := <-p.results
	return r.value, r.err
}

// Close ends the goroutine, which finishes the step that it loads. Next must not be called after it.
func (p *Prefetcher[T]) Close() { close(p.stop) }
