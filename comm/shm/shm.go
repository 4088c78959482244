package shm

import (
	"context"
	"fmt"
	goruntime "runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/comm/internal/names"
	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/mem"
)

// job is the state that all communicators of this process share.
type job struct {
	seg    *control.Segment
	rank   int
	arena  *Arena
	arenas []unsafe.Pointer
	alarm  *atomic.Uint32
	spins  int // how often a waiting rank looks before it yields
	crowd  int // the size from which a communicator is a crowd; see crowdRanks
	many   int // the largest size of a communicator whose small calls each rank carries out; see settle

	alone     atomic.Uint64 // number of waits in calls on windows so far
	answering sync.Mutex

	mu    sync.Mutex
	idle  map[int][]*region // regions that this rank has reserved and no longer uses, by number of ranks
	open  map[*resources]struct{}
	lost  error // the first message that a communicator which is no longer used has left unreceived
	held  int   // bytes that communicators hold
	fresh int   // those of them taken since the last collection
}

// Rank is one rank's end of a communicator. It implements backend.Backend.
type Rank struct {
	parent *Rank
	*resources

	mine     *member
	crowd    bool   // a rank sleeps until all have come; see crowdRanks
	settles  bool   // the last rank to come carries out small calls for all; see settle
	quiet    uint32 // the alarm's value when nothing was wrong
	allAlive uint32 // the alarm's value when no rank of this group had ended
	calls    uint64 // collectives begun
	steps    uint64 // points passed within them
	yields   uint64 // how often this rank has yielded
	sent     []uint64
	received []uint64
	exit     uint64 // value of steps after the call in progress
	exposed  bool   // others may write into this rank's memory until steps is exit

	// The call in progress, by rank.
	srcs, dsts []unsafe.Pointer
	prefixes   backend.Prefixes
	summary    []uint64       // of the ranks' slots, read once
	locations  []location     // of the ranks' data
	parts      []backend.Part // of the ranks' sources
}

// Open returns rank's end of the world over seg, which must be that rank's own mapping. Each
// rank opens the world once, and makes its other communicators from it by Split.
func Open(seg *control.Segment, rank int) (*Rank, error) {
	n := seg.Ranks()
	j := &job{seg: seg, rank: rank, arena: newArena(seg, rank), alarm: seg.Alarm(), idle: map[int][]*region{},
		open: map[*resources]struct{}{}}
	j.spins, j.crowd, j.many = spins(n, seg.Cores()), crowdRanks, manyRanks
	for r := range n {
		base, _ := seg.Arena(r)
		j.arenas = append(j.arenas, base)
	}
	seg.SetNames(names.All())
	offset, err := seg.World(regionBytes(n))
	if err != nil {
		return nil, fmt.Errorf("shm: Open: %w", err)
	}
	return j.join(nil, offset, ints.Range(n), rank)
}

// join returns rank me's end of the communicator whose region is at offset.
func (j *job) join(parent *Rank, offset uint64, world []int, me int) (*Rank, error) {
	n := len(world)
	base, err := j.seg.Region(offset, regionBytes(n))
	if err != nil {
		return nil, err
	}
	g := newRegion(base, offset, n)
	g.head.ranks.Store(uint32(n))
	g.worlds()[me] = uint32(world[me])
	r := &Rank{
		resources: &resources{job: j, region: g, me: me, world: world}, parent: parent,
		mine: g.members[me], crowd: j.spins == 0 && n >= j.crowd, settles: j.spins == 0 && n > j.many,
		quiet: j.alarm.Load() - 1, allAlive: aliveAt(j.alarm.Load()),
		sent: make([]uint64, n), received: make([]uint64, n),
		srcs: make([]unsafe.Pointer, n), dsts: make([]unsafe.Pointer, n), summary: make([]uint64, n), locations: make([]location, n),
		parts: make([]backend.Part, n),
	}
	j.mu.Lock()
	j.open[r.resources] = struct{}{}
	j.mu.Unlock()
	goruntime.AddCleanup(r, (*resources).release, r.resources)
	j.hold(regionBytes(n))
	return r, nil
}

// aliveAt returns a value for Rank.allAlive. The alarm is 0 until a rank ends or aborts; after
// that it says nothing, and any value but alarm makes the next wait look at each rank.
func aliveAt(alarm uint32) uint32 {
	if alarm == 0 {
		return 0
	}
	return alarm - 1
}

// Rank returns this rank's number in the communicator.
func (r *Rank) Rank() int { return r.me }

// Size returns the number of ranks.
func (r *Rank) Size() int { return len(r.world) }

// SupportsRows reports that calls may have rows.
func (r *Rank) SupportsRows() bool { return true }

// OneHost reports that all ranks are processes of one host.
func (r *Rank) OneHost() bool { return true }

// Memory returns this rank's arena.
func (r *Rank) Memory() mem.Allocator { return r.job.arena }

// Split makes new communicators: the first member of each reserves its region
// and tells the others where it is. If one finds no room, all ranks collect garbage and try
// once more.
func (r *Rank) Split(ctx context.Context, members []int) (backend.Backend, error) {
	const none = -1
	leader := len(members) > 0 && members[0] == r.me
	all := make([]int64, len(r.world))
	for again := false; ; again = true {
		mine := max(0, all[r.me]) // the region that this rank reserved in the first try
		if leader && mine == 0 {
			offset, err := r.job.reserve(len(members), again)
			switch {
			case err == nil:
				mine = int64(offset)
			case again:
				r.Abort(err)
				return nil, err
			default:
				mine = none
			}
		}
		call := backend.Call{Kind: backend.SplitKind, Src: backend.Of([]int64{mine}), Dst: backend.Of(all)}
		if err := r.Do(ctx, &call); err != nil {
			return nil, err
		}
		if !slices.Contains(all, none) {
			break
		}
		goruntime.GC()
	}
	if len(members) == 0 {
		return nil, nil
	}
	made, err := r.job.join(r, uint64(all[members[0]]), ints.Pick(r.world, members), slices.Index(members, r.me))
	if err != nil {
		r.Abort(err)
		return nil, err
	}
	made.reserved = leader
	return made, nil
}
