package mem

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/invariant"
)

func TestClassesFit(t *testing.T) {
	last, lastSize := -1, 0
	for _, bytes := range []int{0, 1, 63, 64, 65, 127, 512, 513, 576, 577, 1000, 1 << 10, 1<<10 + 1, 70000, 1 << 20, 1<<20 + 1,
		2048 * 25152 * 4, 3 << 30, 1 << 40, 1 << 48} {
		class, size := classOf(bytes)
		if size < bytes || size%unitBytes != 0 || class < last || size < lastSize || class >= classes {
			t.Errorf("%d bytes: class %d of %d bytes", bytes, class, size)
		}
		if bytes > 512 && size-bytes > bytes/8 {
			t.Errorf("%d bytes: class of %d wastes more than an eighth", bytes, size)
		}
		if bytes > bigBytes && (size-bytes > bytes/256 || size%4096 != 0) {
			t.Errorf("%d bytes: class of %d is not of whole pages, or wastes more than one in 256", bytes, size)
		}
		last, lastSize = class, size
	}
	for class, size := range sizes() {
		if c, s := classOf(size); c != class || s != size {
			t.Errorf("class %d has blocks of %d bytes, which belong to class %d of %d", class, size, c, s)
		}
		if c, _ := classOf(size + 1); c != class+1 {
			t.Errorf("%d bytes are in class %d, want %d", size+1, c, class+1)
		}
	}
}

// sizes yields the classes in order, by asking for one byte more each time.
func sizes() map[int]int {
	m := map[int]int{}
	for size := 64; size < 1<<30; {
		c, s := classOf(size)
		m[c] = s
		size = s + 1
	}
	return m
}

// counted is an Allocator with a limit, which knows what it has handed out.
type counted struct {
	System
	limit, used int
	live        map[unsafe.Pointer]int
}

func newCounted(limit int) *counted {
	return &counted{limit: limit, live: map[unsafe.Pointer]int{}}
}

var errLimit = errors.New("arena is full")

func (c *counted) Alloc(bytes int) (unsafe.Pointer, error) {
	if c.used+bytes > c.limit {
		return nil, errLimit
	}
	p, err := c.System.Alloc(bytes)
	c.used += bytes
	c.live[p] = bytes
	return p, err
}

func (c *counted) Free(p unsafe.Pointer, bytes int) {
	if c.live[p] != bytes {
		panic("freed with another size")
	}
	delete(c.live, p)
	c.used -= bytes
	c.System.Free(p, bytes)
}

func alloc(t *testing.T, p *Pool, bytes int) *Block {
	t.Helper()
	b, err := p.Alloc(bytes)
	if err != nil {
		t.Fatal(err)
	}
	if b.size < bytes || uintptr(b.Ptr())%64 != 0 {
		t.Fatalf("%d bytes: block of %d at %p", bytes, b.size, b.Ptr())
	}
	return b
}

func TestAddressesComeAgain(t *testing.T) {
	p := NewPool(newCounted(1<<30), nil)
	for _, bytes := range []int{1, 100, 5000, 1 << 20, 5 << 20} {
		b := alloc(t, p, bytes)
		first := b.Ptr()
		b.Free(b.Gen())
		if again := alloc(t, p, bytes); again.Ptr() != first {
			t.Errorf("%d bytes: %p, then %p", bytes, first, again.Ptr())
		}
	}
}

func TestDirectPoolKeepsNothing(t *testing.T) {
	from := newCounted(1 << 30)
	p := NewPool(from, nil)
	p.Direct()
	for _, bytes := range []int{0, 1, 100, 1<<20 + 3} {
		s := p.Open()
		b, err := p.Alloc(bytes)
		if err != nil {
			t.Fatal(err)
		}
		if got := from.live[b.Ptr()]; got != max(bytes, 1) {
			t.Errorf("%d bytes: an allocation of %d", bytes, got)
		}
		s.Close()
		if p.Stats().Live != 0 || p.Stats().Reserved != 0 || len(from.live) != 0 {
			t.Errorf("%d bytes: %+v and %d allocations are left", bytes, p.Stats(), len(from.live))
		}
	}
}

func TestBlocksDoNotOverlap(t *testing.T) {
	p := NewPool(newCounted(1<<30), Populate)
	rng := rand.New(rand.NewPCG(1, 2))
	type held struct {
		b    *Block
		mark byte
		n    int
	}
	var live []held
	for step := range 3000 {
		if len(live) > 50 {
			i := rng.IntN(len(live))
			h := live[i]
			for _, v := range unsafe.Slice((*byte)(h.b.Ptr()), h.n) {
				if v != h.mark {
					t.Fatalf("step %d: a block of %d bytes was written by another", step, h.n)
				}
			}
			h.b.Free(h.b.Gen())
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
		}
		n := 1 + rng.IntN(1<<(1+rng.IntN(17)))
		h := held{alloc(t, p, n), byte(step), n}
		for i := range unsafe.Slice((*byte)(h.b.Ptr()), n) {
			*(*byte)(unsafe.Add(h.b.Ptr(), i)) = h.mark
		}
		live = append(live, h)
	}
}

func TestScopesGiveBack(t *testing.T) {
	p := NewPool(newCounted(1<<30), nil)
	outer := p.Open()
	a := alloc(t, p, 1000)
	inner := p.Open()
	b, c := alloc(t, p, 1000), alloc(t, p, 1000)
	gens := []uint64{a.Gen(), b.Gen(), c.Gen()}
	if inner.Keep(b) {
		t.Error("a block kept by an inner scope has no scope")
	}
	inner.Close()
	inner.Close()
	if c.Gen() == gens[2] || b.Gen() != gens[1] || a.Gen() != gens[0] {
		t.Error("closing the inner scope freed the wrong blocks")
	}
	if !outer.Keep(a) {
		t.Error("a block kept by the outermost scope still has one")
	}
	if outer.Keep(a) {
		t.Error("a block was kept twice")
	}
	outer.Close()
	if a.Gen() != gens[0] || b.Gen() == gens[1] {
		t.Error("closing the outer scope freed the wrong blocks")
	}
	if got := p.Stats().Live; got != a.size {
		t.Errorf("%d bytes live, want %d", got, a.size)
	}
	a.Free(gens[0])
	a.Free(gens[0])
	if got := p.Stats().Live; got != 0 {
		t.Errorf("%d bytes live after everything was freed", got)
	}
}

func TestClosingTheOuterClosesTheInner(t *testing.T) {
	p := NewPool(newCounted(1<<30), nil)
	outer := p.Open()
	inner := p.Open()
	b := alloc(t, p, 10)
	gen := b.Gen()
	outer.Close()
	if b.Gen() == gen {
		t.Error("the block of an inner scope outlived the outer one")
	}
	inner.Close()
	if c := alloc(t, p, 10); c.Scoped() {
		t.Error("a scope is still open")
	}
}

func TestFreeAndUnscopeInsideAScope(t *testing.T) {
	p := NewPool(newCounted(1<<30), nil)
	s := p.Open()
	var blocks []*Block
	for range 10 {
		blocks = append(blocks, alloc(t, p, 64))
	}
	blocks[3].Free(blocks[3].Gen())
	if !blocks[7].Unscope() || blocks[7].Unscope() {
		t.Error("Unscope does not report whether a scope owned the block")
	}
	gen := blocks[7].Gen()
	s.Close()
	if live := p.Stats().Live; live != 64 || blocks[7].Gen() != gen {
		t.Errorf("%d bytes live, want those of the one block taken out", live)
	}
}

func TestStepsUseTheSameMemory(t *testing.T) {
	p := NewPool(newCounted(1<<30), nil)
	var reserved, fresh int
	for step := range 1000 {
		s := p.Open()
		for i := range 20 {
			alloc(t, p, 1<<i)
		}
		s.Close()
		if st := p.Stats(); step == 0 {
			reserved, fresh = st.Reserved, st.Fresh
		} else if st.Reserved != reserved || st.Fresh != fresh || st.Live != 0 {
			t.Fatalf("step %d: %+v, after the first %d bytes in %d pieces", step, st, reserved, fresh)
		}
	}
}

func TestPopulateOnceAndOnlyBigBlocks(t *testing.T) {
	calls := map[unsafe.Pointer]int{}
	p := NewPool(newCounted(1<<30), func(ptr unsafe.Pointer, bytes int) { calls[ptr] += bytes })
	for range 3 {
		s := p.Open()
		alloc(t, p, 1<<20)
		alloc(t, p, 100)
		big := alloc(t, p, 3<<20)
		if calls[big.Ptr()] != big.size {
			t.Errorf("populated %d bytes of a block of %d", calls[big.Ptr()], big.size)
		}
		s.Close()
	}
	if len(calls) != 1 {
		t.Errorf("%d blocks populated, want the big one", len(calls))
	}
}

func TestPopulateKeepsContents(t *testing.T) {
	ptr, err := System{}.Alloc(100000)
	if err != nil {
		t.Fatal(err)
	}
	defer (System{}).Free(ptr, 100000)
	b := unsafe.Slice((*byte)(ptr), 100000)
	for i := range b {
		b[i] = byte(i)
	}
	Populate(ptr, len(b))
	for i := range b {
		if b[i] != byte(i) {
			t.Fatalf("byte %d changed", i)
		}
	}
}

func TestFullArenaIsTrimmedThenRefused(t *testing.T) {
	arena := newCounted(10 << 20)
	p := NewPool(arena, nil)
	s := p.Open()
	alloc(t, p, 4<<20)
	alloc(t, p, 4<<20)
	s.Close()
	// Neither cached block is large enough: both must go back.
	b := alloc(t, p, 9<<20)
	_, err := p.Alloc(2 << 20)
	if !errors.Is(err, errLimit) || !strings.Contains(err.Error(), "2097152 bytes") || !strings.Contains(err.Error(), "in use") {
		t.Errorf("error %q, want the sizes and the cause", err)
	}
	b.Free(b.Gen())
	p.Trim()
	if arena.used != 0 || p.Stats().Reserved != 0 {
		t.Errorf("%d bytes held after Trim, stats %+v", arena.used, p.Stats())
	}
}

func TestChangingSizesDoNotPileUp(t *testing.T) {
	arena := newCounted(1 << 40)
	p := NewPool(arena, nil)
	p.collectFrom = 8 << 20
	for mb := 1; mb <= 200; mb++ {
		s := p.Open()
		alloc(t, p, mb<<20)
		s.Close()
		if st := p.Stats(); st.Reserved > 3*st.HighWater+8<<20 || st.Reserved != arena.used {
			t.Fatalf("after blocks of up to %d MiB: %+v, the arena has given %d", mb, st, arena.used)
		}
	}
}

func TestFreedMemoryIsSpoiled(t *testing.T) {
	if !invariant.Enabled {
		t.Skip("only where expensive checks are on")
	}
	p := NewPool(System{}, Populate)
	s := p.Open()
	x := (*float32)(alloc(t, p, 4).Ptr())
	*x = 1
	s.Close()
	if *x == *x {
		t.Errorf("a freed float is %v, want NaN", *x)
	}
}

func TestNextClassServesLargeRequests(t *testing.T) {
	p := NewPool(newCounted(1<<30), nil)
	b := alloc(t, p, 10<<20)
	b.Free(b.Gen())
	if again := alloc(t, p, 9<<20); again != b {
		t.Error("a cached block one class larger was not used")
	}
	if again := alloc(t, p, 5<<20); again == b {
		t.Error("a block was handed out twice")
	}
}

func TestFreeFromOtherGoroutines(t *testing.T) {
	p := NewPool(newCounted(1<<30), nil)
	var wg sync.WaitGroup
	for range 200 {
		b := alloc(t, p, 4096)
		*(*byte)(b.Ptr()) = 1
		ref := Ref{b, b.Gen()}
		wg.Go(ref.Free)
	}
	wg.Wait()
	if st := p.Stats(); st.Live != 0 {
		t.Errorf("%d bytes live", st.Live)
	}
}

func BenchmarkAlloc(b *testing.B) {
	p := NewPool(System{}, Populate)
	b.ReportAllocs()
	for i := 0; i < b.N; i += 100 {
		s := p.Open()
		for range 100 {
			if _, err := p.Alloc(256); err != nil {
				b.Fatal(err)
			}
		}
		s.Close()
	}
}

// A scope that was left keeps its blocks while others are opened and closed.
func TestScopesAreLeft(t *testing.T) {
	p := NewPool(newCounted(1<<30), nil)
	outer := p.Open()
	first := p.Open()
	a, _ := p.Alloc(100)
	first.Leave()
	second := p.Open()
	if _, err := p.Alloc(100); err != nil {
		t.Fatal(err)
	}
	second.Leave()
	between := p.Stats().Live
	first.Enter()
	first.Keep(a)
	first.Close()
	if now := p.Stats().Live; now != between { // a is outer's, the other one second's
		t.Errorf("%d bytes live, want %d", now, between)
	}
	second.Enter()
	second.Close()
	if now := p.Stats().Live; now != between/2 {
		t.Errorf("%d bytes live, want %d", now, between/2)
	}
	outer.Close()
	if now := p.Stats().Live; now != 0 {
		t.Errorf("%d bytes live after all", now)
	}
}
