package mem

// A Scope owns the blocks that are allocated while it is the innermost open one.
type Scope struct {
	pool   *Pool
	parent *Scope
	blocks []*Block
	closed bool
}

// Open opens a scope inside the one that is open now, if any.
func (p *Pool) Open() *Scope {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &Scope{pool: p, parent: p.scope, blocks: p.spare[:0]}
	p.spare = nil
	p.scope = s
	return s
}

// Keep takes b out of s: the enclosing scope owns it from now on. Without an enclosing
// scope no scope owns it, and outer is true: the caller must free b. Keep does nothing if
// s does not own b.
func (s *Scope) Keep(b *Block) (outer bool) {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.scope != s {
		return false
	}
	s.remove(b)
	return p.hand(b, s.parent)
}

// Unscope takes b out of its scope: no scope owns it from now on. It returns false if none
// did before.
func (b *Block) Unscope() bool {
	p := b.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.scope == nil {
		return false
	}
	b.scope.remove(b)
	return p.hand(b, nil)
}

// hand gives b, which no scope owns, to s.
func (p *Pool) hand(b *Block, s *Scope) (outer bool) {
	if s != nil {
		s.add(b)
		return false
	}
	p.unscoped += b.size
	return true
}

// Close gives the blocks of s back to the pool, and those of the scopes that
// were opened inside it and are still open. Closing twice does nothing.
func (s *Scope) Close() {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	for !s.closed {
		inner := p.scope
		for i, b := range inner.blocks {
			inner.blocks[i] = nil
			p.release(b)
		}
		if cap(inner.blocks) > cap(p.spare) {
			p.spare = inner.blocks[:0]
		}
		inner.blocks, inner.closed = nil, true
		p.scope = inner.parent
	}
}

// Leave puts s, the innermost open scope, aside: its blocks stay, and new blocks belong to
// the scope around it, until Enter. A scope that was left may be closed only after Enter.
func (s *Scope) Leave() {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.scope != s {
		panic("mem: Leave of a scope that is not the innermost one; have one goroutine at a time compute")
	}
	p.scope, s.parent = s.parent, nil
}

// Enter makes s, which Leave put aside, the innermost scope again, inside the one that is
// open now. It may be another one than before.
func (s *Scope) Enter() {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.scope, s.parent = s, p.scope
}

func (s *Scope) add(b *Block) {
	b.scope, b.slot = s, len(s.blocks)
	s.blocks = append(s.blocks, b)
}

// remove takes b out of s in constant time: the last block takes its place.
func (s *Scope) remove(b *Block) {
	last := len(s.blocks) - 1
	moved := s.blocks[last]
	s.blocks[b.slot], moved.slot = moved, b.slot
	s.blocks[last] = nil
	s.blocks = s.blocks[:last]
	b.scope = nil
}
