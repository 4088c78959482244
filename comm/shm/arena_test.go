package shm

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/control"
)

// TestArenaNeverHandsOutTwice allocates and frees at random, and keeps its own
// map of which page is whose.
func TestArenaNeverHandsOutTwice(t *testing.T) {
	_, ranks := open(t, 1)
	a := ranks[0].job.arena
	rng := rand.New(rand.NewPCG(1, 2))
	owner := make([]int, a.size/page)
	type block struct {
		p     unsafe.Pointer
		bytes int
	}
	live := map[int]block{}
	for id := 1; id < 3000; id++ {
		if len(live) > 0 && rng.IntN(5) < 2 {
			for k, b := range live { // any
				at, _ := a.offset(b.p, b.bytes)
				for i := at / page; i < at/page+pages(b.bytes)/page; i++ {
					if owner[i] != k {
						t.Fatalf("page %d of block %d belongs to %d", i, k, owner[i])
					}
					owner[i] = 0
				}
				a.Free(b.p, b.bytes)
				delete(live, k)
				break
			}
			continue
		}
		bytes := rng.IntN(40 * page)
		p, err := a.Alloc(bytes)
		if err != nil {
			if len(live) < 100 {
				t.Fatal(err)
			}
			continue
		}
		at, ok := a.offset(p, bytes)
		if !ok || at%page != 0 {
			t.Fatalf("%d bytes at offset %d", bytes, at)
		}
		for i := at / page; i < at/page+pages(bytes)/page; i++ {
			if owner[i] != 0 {
				t.Fatalf("page %d was summary to block %d and to %d", i, owner[i], id)
			}
			owner[i] = id
		}
		live[id] = block{p, bytes}
	}
	for _, b := range live {
		a.Free(b.p, b.bytes)
	}
	if len(a.free) != 1 || a.free[0] != (extent{0, a.size}) || a.used != 0 {
		t.Errorf("after freeing all: %v, %d bytes in use", a.free, a.used)
	}
}

func TestArenaRefuses(t *testing.T) {
	launcher, err := control.Create(2, control.Options{ArenaBytes: 1 << 20, MemoryBytes: 1<<20 + 1<<19})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { launcher.Close() })
	var arenas []*Arena
	for r := range 2 {
		seg, err := control.Open(launcher.Files()[0], launcher.Files()[1], 2, r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { seg.Close() })
		arenas = append(arenas, newArena(seg, r))
	}
	refuses := func(a *Arena, bytes int, says string) {
		t.Helper()
		if _, err := a.Alloc(bytes); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%d bytes: got %v, want %q", bytes, err, says)
		}
	}
	refuses(arenas[0], 1<<20+1, "no gap of that size")
	p, err := arenas[0].Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	refuses(arenas[0], 1, "1048576 in use")
	refuses(arenas[1], 1<<19+1, "may use 1572864")
	arenas[0].Free(p, 1<<20)
	if _, err := arenas[1].Alloc(1 << 20); err != nil {
		t.Errorf("after the other rank freed its memory: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a second Free was accepted")
		}
	}()
	arenas[0].Free(p, 1<<20)
}
