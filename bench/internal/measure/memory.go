package measure

import (
	"fmt"
	"os"
	goruntime "runtime"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/mem"
)

// A Memory is the memory that one call adds, in bytes for each rank.
type Memory struct {
	Arena int // the most that the rank with most took from its arena
	PSS   int // growth of the proportional share of pages, the mean over the ranks; 0 if unknown
}

// Memory counts the memory of one call of run. Call it after the case was timed.
func (b *Bench) Memory(run func() error) (Memory, error) {
	if err := b.settle(); err != nil {
		return Memory{}, err
	}
	held, pss := b.arena.reset(), proportional()
	if err := comm.Barrier(b.ctx, b.World); err != nil { // nobody grows while others look
		return Memory{}, err
	}
	if err := b.scoped(run)(); err != nil {
		return Memory{}, err
	}
	if err := comm.Barrier(b.ctx, b.World); err != nil {
		return Memory{}, err
	}
	grown := []float64{float64(proportional() - pss)}
	taken, err := b.slowest(func() (float64, error) { return float64(b.arena.most() - held), nil })
	if err != nil {
		return Memory{}, err
	}
	if err := comm.AllReduce(b.ctx, b.World, grown, comm.Avg); err != nil {
		return Memory{}, err
	}
	return Memory{Arena: int(taken), PSS: int(grown[0])}, nil
}

// settle frees memory that is not in use.
func (b *Bench) settle() error {
	for range 2 {
		goruntime.GC()
		time.Sleep(5 * time.Millisecond) // clean-ups run in a goroutine of their own
	}
	if d, ok := b.Mesh.Device().(interface{ Trim() }); ok {
		d.Trim()
	}
	return comm.Barrier(b.ctx, b.World)
}

// Fields returns the figures of a Memory. resultBytes is the size of the results, such as
// gradients.
func (m Memory) Fields(resultBytes int) []Field {
	const mib = 1 << 20
	return []Field{
		{"arena_mib", float64(m.Arena) / mib},
		{"pss_mib", float64(m.PSS) / mib},
		{"results_mib", float64(resultBytes) / mib},
	}
}

// An arena counts what a rank takes from its allocator.
type arena struct {
	from mem.Allocator

	mu         sync.Mutex
	used, high int // high is the largest used since reset
}

// Alloc implements mem.Allocator.
func (a *arena) Alloc(bytes int) (unsafe.Pointer, error) {
	p, err := a.from.Alloc(bytes)
	if err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.used += bytes
		a.high = max(a.high, a.used)
	}
	return p, err
}

// Free implements mem.Allocator.
func (a *arena) Free(p unsafe.Pointer, bytes int) {
	a.from.Free(p, bytes)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used -= bytes
}

// reset restarts the count of the most, and returns the bytes taken now.
func (a *arena) reset() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.high = a.used
	return a.used
}

func (a *arena) most() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.high
}

// proportional returns this process's proportional set size in bytes, 0 if it is not known.
func proportional() int {
	n, _ := ProcessBytes("smaps_rollup", "Pss")
	return n
}

// ProcessBytes returns a field of a file of /proc/self, such as Pss of smaps_rollup or VmHWM of status, in bytes.
func ProcessBytes(file, field string) (int, error) {
	text, err := os.ReadFile("/proc/self/" + file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		var kib int
		if n, _ := fmt.Sscanf(line, field+": %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("/proc/self/%s has no %s", file, field)
}
