package mem

import "unsafe"

// A Block is a piece of a pool's memory. Its generation counts how often it was given
// back: an owner compares it with the generation at allocation to see whether it still
// owns the memory.
type Block struct {
	ptr   unsafe.Pointer
	pool  *Pool
	next  *Block // in the free list
	scope *Scope // the owner; nil: none, or the block is free
	slot  int    // scope.blocks[slot] is this block
	gen   uint64
	size  int
	class int
	why   string // of Gone
}

// Gone returns a block without memory. Its generation is not 0, so nothing that was allocated
// with generation 0 owns it. why, which is not empty, says where the memory is instead.
func Gone(why string) *Block { return &Block{gen: 1, why: why} }

// Why returns what Gone was given, "" for a block of a pool.
func (b *Block) Why() string { return b.why }

// Ptr returns the address of the first byte.
func (b *Block) Ptr() unsafe.Pointer { return b.ptr }

// Gen returns the present generation.
func (b *Block) Gen() uint64 { return b.gen }

// Scoped reports whether a scope owns the block.
func (b *Block) Scoped() bool { return b.scope != nil }

// Free gives the block back to its pool, scope or none. It does nothing if the
// block is no longer of generation gen. It is safe to call from any goroutine
// if no scope owns the block.
func (b *Block) Free(gen uint64) {
	p := b.pool
	if p == nil { // it is gone
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.gen != gen {
		return
	}
	if b.scope != nil {
		b.scope.remove(b)
	} else {
		p.unscoped -= b.size
	}
	p.release(b)
}

// A Ref is a block with the generation it was allocated with.
type Ref struct {
	Block *Block
	Gen   uint64
}

// Free gives the block back unless that happened before. Clean-ups call it.
func (r Ref) Free() { r.Block.Free(r.Gen) }
