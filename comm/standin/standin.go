package standin

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/comm/mem"
	"github.com/gorun-spmd/gorun/internal/ints"
	gorunmem "github.com/gorun-spmd/gorun/internal/mem"
)

// A Config says which ranks of a job run.
type Config struct {
	Size int                // ranks of the job
	Run  []int              // those that run, in order
	For  func(rank int) int // which of them stands in for a rank; of ranks that run, themselves
}

// Open returns the ends of the ranks that run, in order. Each is a world of which a Comm is made
// with comm.NewWorld. Watch looks for ranks that wait for each other.
func Open(c Config) []*Rank {
	j := &job{config: c, groups: map[groupKey]*group{}}
	g := newGroup(j, ints.Range(c.Size))
	ranks := make([]*Rank, len(c.Run))
	for i, inner := range mem.OpenNumbered(slices.Clone(c.Run)) {
		ranks[i] = &Rank{g: g, me: i, rank: c.Run[i], inner: inner, own: new(own)}
	}
	return ranks
}

// Watch has calls of ranks that wait for each other fail, as mem.Watch does, until stop is called.
func Watch(ranks []*Rank) (stop func()) {
	inner := make([]*mem.Rank, len(ranks))
	for i, r := range ranks {
		inner[i] = r.inner
	}
	return mem.Watch(inner)
}

// A job is what all groups share.
type job struct {
	config Config
	mu     sync.Mutex
	groups map[groupKey]*group
}

// A groupKey says by which Split of which group a group was made, and its first rank.
type groupKey struct {
	parent       *group
	split, first int
}

// A group is one communicator.
type group struct {
	*job
	world []int     // world[r] is the world number of rank r
	here  []int     // the ranks that run, in order
	posts [2][]post // of the ranks that run, of a call and of the one before
	sites []string  // of the calls of ranks that are in different steps
}

func newGroup(j *job, world []int) *group {
	g := &group{job: j, world: world}
	for r, w := range world {
		if _, ok := slices.BinarySearch(j.config.Run, w); ok {
			g.here = append(g.here, r)
		}
	}
	g.sites = make([]string, len(g.here))
	for i := range g.posts {
		g.posts[i] = make([]post, len(g.here))
	}
	return g
}

// A post is what a rank shows the others of its call.
type post struct {
	call   *backend.Call
	own    *own // of the rank
	real   bool // its elements are there
	step   int  // of the program
	blocks bool
}

// own is what all groups share of one rank.
type own struct {
	numberless func(p unsafe.Pointer, bytes int) (run int, numberless bool)
	step       func() int

	mu   sync.Mutex // calls that were started are made by goroutines of their own
	last string     // the last call and its line
}

// A Rank is the end of one rank that runs, in one group. It implements backend.Backend.
type Rank struct {
	g      *group
	rank   int
	me     int // its place among those that run
	inner  *mem.Rank
	own    *own
	calls  int
	splits int
	forAll []int // by rank of the group, the place of the one that runs and stands in; made when first needed
}

// Use says which addresses have no elements, and at which step of the program this rank is. Either
// may be nil. numberless is asked whether the bytes from p on have none, and answers for the first
// run of them that is alike. Use is called before the first call of any communicator.
func (r *Rank) Use(numberless func(p unsafe.Pointer, bytes int) (run int, numberless bool), step func() int) {
	r.own.numberless, r.own.step = numberless, step
}

// Rank returns this rank's number in the group.
func (r *Rank) Rank() int { return r.rank }

// Size returns the number of ranks, those included that do not run.
func (r *Rank) Size() int { return len(r.g.world) }

// Library returns what makes no windows.
func (r *Rank) Library() string { return "a job of which only some ranks run" }

// SupportsRows reports that calls may have rows.
func (r *Rank) SupportsRows() bool { return true }

// Memory returns nil: any memory will do.
func (r *Rank) Memory() gorunmem.Allocator { return nil }

// Abort ends the group and those split from it.
func (r *Rank) Abort(cause error) { r.inner.Abort(cause) }

// End says that this rank will make no more calls on any communicator: calls of others that need
// it fail. cause is "" if it ended without an error; they then name the last call that it made.
func (r *Rank) End(cause string) {
	r.own.mu.Lock()
	defer r.own.mu.Unlock()
	if cause == "" {
		cause = "without an error, before any call"
		if r.own.last != "" {
			cause = "without an error, and its last call was " + r.own.last
		}
	}
	r.inner.End(cause)
}

// makes notes that this rank makes a call.
func (r *Rank) makes(call *backend.Call) {
	r.own.mu.Lock()
	defer r.own.mu.Unlock()
	r.own.last = fmt.Sprintf("%v at %s", call, call.Site())
}

// standIns returns by rank of the group which of those that run, by its place among them, stands
// in for it: the one that Config.For names if it is of the group, else the next one below.
func (r *Rank) standIns() []int {
	if r.forAll != nil {
		return r.forAll
	}
	g, below := r.g, 0
	r.forAll = make([]int, len(g.world))
	place := map[int]int{} // by world number
	for i, q := range g.here {
		place[g.world[q]] = i
	}
	for q, w := range g.world {
		if i, ok := place[w]; ok {
			below = i
			r.forAll[q] = i
		} else if i, ok := place[g.config.For(w)]; ok {
			r.forAll[q] = i
		} else {
			r.forAll[q] = below
		}
	}
	return r.forAll
}

// runs reports whether a rank of the group runs.
func (g *group) runs(rank int) (place int, ok bool) { return slices.BinarySearch(g.here, rank) }

// Split makes new groups.
func (r *Rank) Split(ctx context.Context, members []int) (backend.Backend, error) {
	r.splits++
	var here []int // by place
	for _, m := range members {
		if i, ok := r.g.runs(m); ok {
			here = append(here, i)
		}
	}
	inner, err := r.inner.Split(ctx, here)
	if err != nil || len(members) == 0 {
		return nil, err
	}
	rank := slices.Index(members, r.rank)
	g := r.g.part(r.splits, members)
	me, _ := g.runs(rank)
	return &Rank{g: g, rank: rank, me: me, inner: inner.(*mem.Rank), own: r.own}, nil
}

// part returns the group of some ranks, by the split-th Split. The first that asks makes it.
func (g *group) part(split int, members []int) *group {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := groupKey{g, split, members[0]}
	made := g.groups[key]
	if made == nil {
		made = newGroup(g.job, ints.Pick(g.world, members))
		g.groups[key] = made
	}
	return made
}

// Numberless reports whether p is an address without elements.
func (r *Rank) Numberless(p unsafe.Pointer) bool {
	_, none := r.own.without(p, 1)
	return none
}

// without reports whether the first bytes from p on are addresses without elements, and for how many bytes, run, that holds.
func (o *own) without(p unsafe.Pointer, bytes int) (run int, numberless bool) {
	if o.numberless == nil {
		return bytes, false
	}
	return o.numberless(p, bytes)
}

// isReal reports whether the elements of a buffer are there, some of them at least.
func (r *Rank) isReal(b backend.Buffer) bool {
	if b.Count == 0 {
		return true
	}
	run, none := r.own.without(b.Ptr, b.Bytes())
	return !none || run < b.Bytes()
}

// Do carries out one call.
func (r *Rank) Do(ctx context.Context, call *backend.Call) error {
	if err := call.Carried("comm/standin", patterns); err != nil {
		r.Abort(err)
		return err
	}
	r.makes(call)
	if call.Kind.PointToPoint() {
		return r.message(ctx, call)
	}
	posts := r.g.posts[r.calls%2] // those before are read until all have come to this call
	r.calls++
	mine := &posts[r.me]
	*mine = post{call: call, own: r.own, real: r.isReal(call.Dst) && r.isReal(call.Src), blocks: call.Blocks()}
	if r.own.step != nil {
		mine.step = r.own.step()
	}
	if err := r.meet(ctx, call); err != nil {
		return err
	}
	if err := r.sameStep(ctx, posts); err != nil {
		return err
	}
	pairwise := call.Kind.Shape().Pairwise()
	if !pairwise && !slices.ContainsFunc(posts, func(p post) bool { return p.real }) {
		return nil
	}
	var uneven, err error // the first is the same on all ranks
	var done func()
	if pairwise {
		uneven = r.agree(posts)
	}
	if uneven == nil && mine.real {
		done, err = r.compute(posts)
	}
	if err != nil {
		r.Abort(err)
		return err
	}
	if err := r.meet(ctx, call); err != nil { // nobody reads another's call or memory any more
		return err
	}
	if uneven == nil && done != nil {
		done()
	}
	return uneven
}

// meet waits for all ranks that run, and compares fingerprints.
func (r *Rank) meet(ctx context.Context, call *backend.Call) error {
	step := call.Inner(backend.BarrierKind, backend.Buffer{}, backend.Buffer{})
	return r.inner.Do(ctx, &step)
}

// sameStep returns an error if ranks make a call in different steps of the program: they would
// meet by chance, as one has left out a call that looks the same. All ranks get the same error.
func (r *Rank) sameStep(ctx context.Context, posts []post) error {
	other := slices.IndexFunc(posts, func(p post) bool { return p.step != posts[0].step && p.blocks && posts[0].blocks })
	if other < 0 {
		return nil
	}
	call := posts[r.me].call
	r.g.sites[r.me] = call.Site()
	if err := r.meet(ctx, call); err != nil {
		return err
	}
	party := func(i int) backend.Party {
		p := &posts[i]
		return backend.Party{Rank: r.g.world[r.g.here[i]], Call: fmt.Sprintf("%v in step %d", p.call, p.step), Site: r.g.sites[i]}
	}
	err := backend.Mismatch(party(0), party(other))
	if m := r.meet(ctx, call); m != nil {
		return m
	}
	return err
}

// message carries out a Send or a Recv. One with a rank that does not run ends at once.
func (r *Rank) message(ctx context.Context, call *backend.Call) error {
	inner, ok := r.peer(call)
	if !ok {
		return nil
	}
	return r.inner.Do(ctx, inner)
}

// SendRecv carries out a Send and a Recv at once.
func (r *Rank) SendRecv(ctx context.Context, send, recv *backend.Call) error {
	r.makes(send)
	one, sends := r.peer(send)
	two, receives := r.peer(recv)
	switch {
	case sends && receives:
		return r.inner.SendRecv(ctx, one, two)
	case sends:
		return r.inner.Do(ctx, one)
	case receives:
		return r.inner.Do(ctx, two)
	}
	return nil
}

// peer returns a message as those that run make it, without elements if there are none; ok is
// false if the other side does not run.
func (r *Rank) peer(call *backend.Call) (inner *backend.Call, ok bool) {
	place, ok := r.g.runs(call.Root)
	if !ok {
		return nil, false
	}
	step := call.Inner(call.Kind, call.Dst, call.Src)
	if !r.isReal(call.Dst) || !r.isReal(call.Src) {
		step.Dst.Count, step.Src.Count = 0, 0
	}
	step.Root = place
	return &step, true
}
