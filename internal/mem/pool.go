package mem

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/invariant"
)

// A Pool caches the memory of one Allocator in size classes. Blocks of a class
// are handed out last in, first out: the same addresses come again.
//
// One goroutine at a time may allocate and open scopes, as one goroutine at a
// time computes on a device; blocks may be freed from any goroutine.
type Pool struct {
	from     Allocator
	populate func(p unsafe.Pointer, bytes int)
	direct   bool // see Direct

	mu      sync.Mutex
	free    lists
	slab    unsafe.Pointer // the unused rest of the newest slab
	slabLen int
	scope   *Scope // the innermost open one
	spare   []*Block
	stats   Stats
	frees   int // how often blocks were freed, by which collect sees clean-ups at work

	// Blocks outside every scope may be garbage; only a collection can tell.
	// Invariant: unscoped <= stats.Live; survived is unscoped after the last collection.
	unscoped, survived, collectFrom int
}

// Direct switches the cache off: each block is an allocation of exactly the requested
// bytes, given back at once. Tools that find accesses outside an allocation then find
// those outside a block. It must be called before the first Alloc.
func (p *Pool) Direct() { p.direct = true }

// Stats counts the bytes of a pool.
type Stats struct {
	Live      int // in blocks that are in use
	Cached    int // in free blocks that the pool keeps
	Reserved  int // taken from the Allocator
	HighWater int // the largest Live so far
	Fresh     int // how many times the Allocator was called for memory
	Collected int // how many times the pool asked for a garbage collection
}

// NewPool returns a pool over from. populate is called once for each new block
// above 1 MiB (see Populate); nil says that the process cannot touch the memory.
func NewPool(from Allocator, populate func(p unsafe.Pointer, bytes int)) *Pool {
	return &Pool{from: from, populate: populate, collectFrom: collectFrom}
}

// Stats returns the present counts.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

// Alloc returns a block of at least bytes, aligned to 64 bytes, contents
// unspecified. The innermost open scope owns it; with no scope open it is the
// caller's to Free. The error names the sizes.
func (p *Pool) Alloc(bytes int) (*Block, error) {
	class, size := classOf(bytes)
	if p.direct {
		size = max(bytes, 1)
	}
	p.mu.Lock()
	if p.unscoped-p.survived > max(p.survived+p.scoped(), p.collectFrom) {
		p.collect()
	}
	b := p.take(class, size)
	if b == nil {
		var err error
		if b, err = p.obtain(class, size); err != nil {
			live, cached := p.stats.Live, p.stats.Cached
			p.mu.Unlock()
			return nil, fmt.Errorf("mem: Alloc: %d bytes, with %d in use and %d cached: %w", bytes, live, cached, err)
		}
	}
	p.stats.Live += b.size
	p.stats.HighWater = max(p.stats.HighWater, p.stats.Live)
	if p.scope != nil {
		p.scope.add(b)
	} else {
		p.unscoped += b.size
	}
	p.mu.Unlock()
	return b, nil
}

// scoped returns the live bytes that scopes own.
func (p *Pool) scoped() int { return p.stats.Live - p.unscoped }

// take returns a cached block of the class, or for a large request one of the next
// classes, the smallest first; nil if there is none.
func (p *Pool) take(class, size int) *Block {
	last := class
	if size > smallBytes {
		last = loosest(class)
	}
	for c := class; c <= last; c++ {
		if at := p.free.of(c); at != nil && *at != nil {
			b := *at
			*at, b.next = b.next, nil
			p.stats.Cached -= b.size
			return b
		}
	}
	return nil
}

// obtain returns a new block of the class. If there is no memory, it collects garbage and
// gives the cache back, and then takes a freed block of the class or tries again.
func (p *Pool) obtain(class, size int) (*Block, error) {
	b, err := p.grow(class, size)
	if err == nil {
		return b, nil
	}
	p.collect()
	p.trim()
	if b = p.take(class, size); b != nil {
		return b, nil
	}
	return p.grow(class, size)
}

// grow makes a new block of the class.
func (p *Pool) grow(class, size int) (*Block, error) {
	b := &Block{pool: p, size: size, class: class}
	if size > smallBytes || p.direct {
		// Sizes that change from step to step leave blocks in the cache that nobody asks
		// for again. If more is cached than was ever in use at once, empty the cache.
		if p.stats.Cached > max(p.stats.HighWater, p.collectFrom) {
			p.trim()
		}
		ptr, err := p.from.Alloc(size)
		if err != nil {
			return nil, err
		}
		p.stats.Fresh++
		p.stats.Reserved += size
		if size > bigBytes && p.populate != nil {
			p.populate(ptr, size)
		}
		b.ptr = ptr
		return b, nil
	}
	if p.slabLen < size {
		ptr, err := p.from.Alloc(slabBytes)
		if err != nil {
			return nil, err
		}
		p.stats.Fresh++
		p.stats.Reserved += slabBytes
		p.slab, p.slabLen = ptr, slabBytes
	}
	b.ptr = p.slab
	p.slabLen -= size
	if p.slabLen > 0 {
		p.slab = unsafe.Add(p.slab, size)
	}
	return b, nil
}

// release puts b back into its class. The caller holds the lock and has taken
// b off its scope or off unscoped.
func (p *Pool) release(b *Block) {
	if invariant.Enabled && p.populate != nil {
		spoil(b)
	}
	b.gen++
	b.scope = nil
	p.stats.Live -= b.size
	p.frees++
	if p.direct {
		p.from.Free(b.ptr, b.size)
		p.stats.Reserved -= b.size
		return
	}
	p.stats.Cached += b.size
	at := p.free.make(b.class)
	b.next, *at = *at, b
}

// spoil fills a block so that floats are NaN and indices -1: a read after the scope
// closed does not go unnoticed.
func spoil(b *Block) {
	s := unsafe.Slice((*byte)(b.ptr), b.size)
	for i := range s {
		s[i] = 0xff
	}
}

// collect runs Go's collector and waits until the clean-ups that follow from it
// have freed their blocks. The caller holds the lock.
func (p *Pool) collect() {
	p.stats.Collected++
	before := p.frees
	p.mu.Unlock()
	runtime.GC()
	counts := []metrics.Sample{{Name: "/gc/cleanups/queued:cleanups"}, {Name: "/gc/cleanups/executed:cleanups"}}
	metrics.Read(counts)
	all := counts[0].Value.Uint64()
	// Clean-ups run on goroutines of their own, and one of another package may wait for
	// something that comes later. So after a second without a new free, stop waiting.
	for last := time.Now(); counts[1].Value.Uint64() < all && time.Since(last) < time.Second; metrics.Read(counts) {
		time.Sleep(20 * time.Microsecond)
		p.mu.Lock()
		if p.frees != before {
			before, last = p.frees, time.Now()
		}
		p.mu.Unlock()
	}
	p.mu.Lock()
	p.survived = p.unscoped
}

// Trim gives cached blocks above 64 KiB back to the Allocator.
func (p *Pool) Trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trim()
}

func (p *Pool) trim() {
	first, _ := classOf(smallBytes + 1)
	for c := first; c < classes; c++ {
		at := p.free.of(c)
		if at == nil {
			continue
		}
		for b := *at; b != nil; b = b.next {
			p.from.Free(b.ptr, b.size)
			p.stats.Cached -= b.size
			p.stats.Reserved -= b.size
		}
		*at = nil
	}
}
