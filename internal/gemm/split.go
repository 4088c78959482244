package gemm

import (
	"runtime"
	"sync"

	"github.com/gorun-spmd/gorun/internal/ints"
)

// ThreadWork is how many multiplications are worth a goroutine: some hundred microseconds of work.
const ThreadWork = 1 << 24

// threadsFor returns how many goroutines a product is worth: each should have
// enough to multiply, or to read of the larger operand.
func threadsFor(m, n, k int) int {
	const reads = 1 << 20 // elements
	parts := max(float64(m)*float64(n)*float64(k)/ThreadWork, float64(max(m, n))*float64(k)/reads)
	if parts < 2 {
		return 1
	}
	return int(min(parts, float64(runtime.GOMAXPROCS(0))))
}

// split cuts C into parts for threads goroutines, along its longer side and
// between tiles. The sums are never cut, so the result is that of one thread.
func split[T Float](kn *kernel, threads, m, n, k int, alpha T, a, b matrix[T], beta T, c matrix[T]) {
	var wg sync.WaitGroup
	byRows := m >= n
	size, tile := n, kn.cols
	if byRows {
		size, tile = m, kn.rows
	}
	tiles := ints.DivUp(size, tile)
	threads = min(threads, tiles)
	for t := range threads {
		from, to := t*tiles/threads*tile, min((t+1)*tiles/threads*tile, size)
		wg.Go(func() {
			if byRows {
				gemm(kn, to-from, n, k, alpha, a.from(from, 0), b, beta, c.from(from, 0))
			} else {
				gemm(kn, m, to-from, k, alpha, a, b.from(0, from), beta, c.from(0, from))
			}
		})
	}
	wg.Wait()
}

// A batch is the arguments of Batch.
type batch[T Float] struct {
	*kernel
	m, n, k int
	alpha   T
	a       matrix[T]
	strideA int
	b       matrix[T]
	strideB int
	beta    T
	c       matrix[T]
	strideC int
}

// multiply does the first count products. If there are enough, goroutines share them; else
// it does one after another, each cut among the goroutines.
func (p batch[T]) multiply(count int) {
	threads := threadsFor(count*p.m, p.n, p.k)
	switch {
	case threads == 1:
		p.run(0, count)
	case count >= threads:
		p.split(count, threads)
	default:
		for i := range count {
			a, b, c := p.number(i)
			split(p.kernel, threads, p.m, p.n, p.k, p.alpha, a, b, p.beta, c)
		}
	}
}

// run does the products numbered from to to-1.
func (p *batch[T]) run(from, to int) {
	for i := from; i < to; i++ {
		a, b, c := p.number(i)
		gemm(p.kernel, p.m, p.n, p.k, p.alpha, a, b, p.beta, c)
	}
}

// number returns the matrices of product i.
func (p *batch[T]) number(i int) (a, b, c matrix[T]) {
	a, b = p.a, p.b
	if p.k > 0 { // else they may be empty
		a, b = a.after(i*p.strideA), b.after(i*p.strideB)
	}
	return a, b, p.c.after(i * p.strideC)
}

// split shares the products among goroutines.
func (p batch[T]) split(count, threads int) {
	var wg sync.WaitGroup
	for t := range threads {
		wg.Go(func() { p.run(t*count/threads, (t+1)*count/threads) })
	}
	wg.Wait()
}
