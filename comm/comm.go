package comm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gorun-spmd/gorun/internal/mem"
)

// A Comm is one rank's end of a communicator: a group of ranks that make the
// same calls in the same order. Calls from several goroutines do not corrupt
// it, but their order would differ between ranks, so use one.
type Comm struct {
	rank, size int
	world      []int // world[r] is the world number of rank r; ranks of one process may share it
	name       string
	shared     *shared
	memory     mem.Allocator
	backend    Backend
	queue      queue

	account *account // its lock is held during a call, and guards what follows
	call    Call     // the call in progress, here so that a call allocates nothing
	simple  Call     // the call in progress if do makes it; Func, counts and rows stay zero
	second  Call     // the Recv of a SendRecv, whose Send is call
	seq     uint64   // calls made
	splits  int      // communicators made from this one
	err     error    // the first error; sticky

	wrap    *func(Backend, []int) Backend // the function that made wrapped; nil: none has
	wrapped Backend

	numbers map[messageKey]uint64 // of recorded messages, see Event.Number
	counts  [2][]int              // of the call in progress in bytes, see countBytes
	scratch []uint64              // a buffer of a call in place, see separate
}

// NewWorld returns the communicator of all ranks over b. Each rank calls it
// once, and makes every other communicator by Split or Group.
func NewWorld(b Backend) *Comm {
	s := newShared()
	if b, ok := b.(CommonBackend); ok {
		s.common = b.Common()
	}
	world := s.common.Get(worldKey{}, func() any {
		world := make([]int, b.Size())
		for r := range world {
			world[r] = r
		}
		return world
	}).([]int)
	memory := b.Memory()
	if memory == nil {
		memory = new(mem.System)
	}
	return newComm("world", s, b, b.Rank(), world, memory)
}

// worldKey is the key of the list of all ranks.
type worldKey struct{}

// newComm returns rank's communicator of the ranks with these world numbers. One of a single rank has a
// backend of its own.
func newComm(name string, s *shared, b Backend, rank int, world []int, memory mem.Allocator) *Comm {
	if len(world) == 1 {
		b = &solo{world: world[0]}
	}
	c := &Comm{name: name, shared: s, backend: b, rank: rank, size: len(world), world: world, memory: memory}
	c.account = s.ledger.open(c)
	return c
}

// Rank returns this rank's number in the communicator, from 0.
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of ranks.
func (c *Comm) Size() int { return c.size }

// WorldRank returns the world number of rank r of the communicator.
func (c *Comm) WorldRank(r int) int { return c.world[r] }

// Name identifies the communicator in messages: "world", "world/2:0" for
// colour 0 of the second communicator split from it.
func (c *Comm) Name() string { return c.name }

// Memory returns where buffers should live so that other ranks read and write
// them in place. It is never nil. It may be used from any goroutine.
func (c *Comm) Memory() mem.Allocator { return c.memory }

// Abort ends the communicator and all that were split from it: pending and
// later calls of all its ranks return an error for which errors.Is(err,
// ErrAborted) is true and which names this rank and cause. Only the first
// abort counts. Abort may be called from any goroutine. A nil cause is
// recorded as "no cause given".
func (c *Comm) Abort(cause error) {
	if cause == nil {
		cause = errors.New("no cause given")
	}
	c.backend.Abort(cause)
}

// Do carries out call: AllReduce is Do of a Call of AllReduceKind, and so are the
// other collectives. It returns when this rank's buffers may be used again. Its
// error is an *Error.
//
// If ctx is done before or during the call the communicator is aborted on all
// ranks, and cannot be used again. A ctx whose cause is ErrStopping aborts nothing.
func (c *Comm) Do(ctx context.Context, call Call) error {
	if c.none() {
		return noComm(&call)
	}
	c.drain()
	c.account.mu.Lock()
	c.call = call
	return c.finish(ctx, &c.call)
}

// do is Do for calls that have neither counts nor a Func. It sets the fields of c.simple one
// by one: to copy or to clear a Call takes a large part of the time of a small collective.
func (c *Comm) do(ctx context.Context, kind Kind, op Op, root int, dst, src Buffer) error {
	if c.none() {
		return noComm(&Call{Kind: kind, Op: op, Root: root, Dst: dst, Src: src})
	}
	c.drain()
	c.account.mu.Lock()
	call := &c.simple
	call.Kind, call.Op, call.Root = kind, op, root
	call.Dst, call.Src = dst, src
	if c.size > 1 || c.shared.recorder.Load() != nil || c.shared.wrap.Load() != nil {
		return c.finish(ctx, call)
	}
	err := c.run(ctx, call) // nothing in it panics, and to defer would take a sixth of the time
	c.account.mu.Unlock()
	return err
}

// finish runs a call and unlocks c, also when a backend, a Func or an observer panics.
func (c *Comm) finish(ctx context.Context, call *Call) error {
	defer c.account.mu.Unlock()
	return c.run(ctx, call)
}

// none reports whether c is nil, as a rank that is in no group gets it, or the zero Comm.
func (c *Comm) none() bool { return c == nil || c.backend == nil }

// is reports whether this rank is the given one of c. Where c is none, is returns false and ranks returns 0, so that a
// function comes to its first call, which refuses c.
func (c *Comm) is(rank int) bool { return !c.none() && c.rank == rank }

// ranks is Size that takes a nil c.
func (c *Comm) ranks() int {
	if c.none() {
		return 0
	}
	return c.size
}

func noComm(call *Call) error {
	return &Error{Call: call.String(), Site: call.Site(), Rank: -1,
		Err: errors.New("the communicator is nil: this rank is in none of the groups of Split or Group; make the call on ranks that are")}
}

// run carries out call, which is c.call or c.simple. c is locked.
func (c *Comm) run(ctx context.Context, call *Call) error {
	c.seq++
	err := call.check(c.rank, c.size)
	if err == nil && call.special != 0 {
		err = c.adapt(call)
	}
	if err != nil || c.err != nil || ctx == nil || ctx.Err() != nil {
		if err := c.refuse(ctx, call, err); err != nil {
			return err
		}
	}
	var r *Recording
	if !call.Check {
		c.account.add(call.Kind, call.Cause, call.Bytes())
		r = c.shared.recorder.Load()
	}
	if r != nil {
		err = r.observe(c, call, func() error { return c.carrier().Do(ctx, call) })
	} else {
		err = c.carrier().Do(ctx, call)
	}
	if err != nil {
		return c.fail(call, err)
	}
	return nil
}

// refuse returns the error of a call that is not to be made, nil if it is. problem is what is wrong with the
// call itself.
func (c *Comm) refuse(ctx context.Context, call *Call, problem error) error {
	if c.err != nil {
		return c.fail(call, fmt.Errorf("the communicator cannot be used after its first error: %w", c.err))
	}
	if problem != nil {
		c.backend.Abort(fmt.Errorf("%v: %w", call, problem))
		return c.fail(call, problem)
	}
	if err := Cancelled(ctx); err != nil {
		c.backend.Abort(err)
		return c.fail(call, err)
	}
	return nil
}

// adapt changes a special call, which was checked, into one that the backend takes.
func (c *Comm) adapt(call *Call) error {
	special := call.special
	call.special = 0
	if special&hasRows != 0 && !c.Internals().SupportsRows() {
		return errors.New("this communicator takes no DstRows and SrcRows; pack the parts one after another, see comm.Internals.SupportsRows")
	}
	if special&overlaps != 0 {
		if err := c.separate(call); err != nil {
			return err
		}
	}
	if special&ofStructs != 0 {
		call.countBytes(&c.counts)
	}
	return nil
}

// fail makes err an *Error about the call in progress, and sticky.
func (c *Comm) fail(call *Call, err error) error {
	e := c.failAlone(call, err)
	e.Seq = c.seq
	if c.err == nil {
		c.err = e
	}
	return e
}

// failAlone makes err an *Error about a call that has no number. The communicator can be used again.
func (c *Comm) failAlone(call *Call, err error) *Error {
	return &Error{Call: call.String(), Site: call.Site(), Comm: c.name, Rank: c.world[c.rank], Err: err}
}

// Split makes communicators of the ranks that give the same color, ordered by
// key and then by rank. All ranks must call it. A rank with a negative color
// joins none and gets nil. A group of one rank makes no shared state. A Split of all
// ranks with one color and their own numbers as keys is MPI's MPI_Comm_dup.
func (c *Comm) Split(ctx context.Context, color, key int) (*Comm, error) {
	return c.splitByColor(ctx, color, key, nil)
}

// splitByColor is Split. places, if it is not nil, says what each rank gives.
func (c *Comm) splitByColor(ctx context.Context, color, key int, places func(rank int) (color, key int)) (*Comm, error) {
	return c.split(ctx, color, key, places, fmt.Sprintf(":%d", color), func(s *splitting) (group, bool, error) {
		s.divide.Do(func() { s.groups, s.shared = divide(c.world, s.all) })
		return s.groups[color], s.shared, nil
	})
}

// Group makes a communicator of the given ranks of c, in that order. All ranks
// of c must call it with the same list; those outside it get nil. For several groups
// at once use Split.
func (c *Comm) Group(ctx context.Context, ranks []int) (*Comm, error) {
	hash := int(hashCounts(ranks))
	places := func(int) (int, int) { return hash, len(ranks) }
	return c.split(ctx, hash, len(ranks), places, "", func(s *splitting) (g group, shared bool, err error) {
		for r := range c.size {
			if s.all[2*r] != s.all[0] || s.all[2*r+1] != s.all[1] {
				return g, false, fmt.Errorf("%w: ranks %d and %d gave different lists of ranks to Group, this one %v; give all the same",
					ErrMismatch, c.world[0], c.world[r], ranks)
			}
		}
		seen := make([]bool, c.size)
		for i, r := range ranks {
			if r < 0 || r >= c.size || seen[r] {
				return g, false, fmt.Errorf("ranks[%d] of Group is %d, in %v; give each of 0 to %d at most once", i, r, ranks, c.size-1)
			}
			seen[r] = true
		}
		if seen[c.rank] {
			g = newGroup(c.world, slices.Clone(ranks))
		}
		return g, len(ranks) > 1, nil
	})
}

// A splitting is what the ranks of a Split give, and the groups that follow. Ranks of one process share one.
type splitting struct {
	all    []int // two numbers of each rank
	divide sync.Once
	groups map[int]group // by colour
	shared bool          // some group has two ranks
}

// A splitKey is the key of a splitting: the communicator's name and the number of the Split.
type splitKey struct {
	name   string
	splits int
}

// A group is the ranks of a new communicator.
type group struct {
	members []int // their ranks in the communicator that is split
	world   []int // their world numbers
}

func newGroup(world, members []int) group {
	g := group{members: members, world: make([]int, len(members))}
	for i, r := range members {
		g.world[i] = world[r]
	}
	return g
}

// divide returns the groups of the ranks that give the same colour, from the colour and the key of each rank.
func divide(world []int, all []int) (groups map[int]group, shared bool) {
	members := map[int][]int{}
	for r := range world {
		if color := all[2*r]; color >= 0 {
			members[color] = append(members[color], r)
		}
	}
	groups = map[int]group{}
	for color, ranks := range members {
		slices.SortStableFunc(ranks, func(a, b int) int { return cmp.Compare(all[2*a+1], all[2*b+1]) })
		groups[color] = newGroup(world, ranks)
		shared = shared || len(ranks) > 1
	}
	return groups, shared
}

// split makes a communicator. It gathers two numbers from each rank, a and b from this one; places, if it is not
// nil, says which numbers each rank gives. choose then returns this rank's group, an empty one if it is in none,
// and says whether some rank's group has two ranks. suffix ends the communicator's name.
func (c *Comm) split(ctx context.Context, a, b int, places func(rank int) (a, b int), suffix string,
	choose func(s *splitting) (g group, shared bool, err error),
) (*Comm, error) {
	mine := Of([]int{a, b})
	if c.none() {
		return nil, noComm(&Call{Kind: SplitKind, Src: mine})
	}
	c.drain()
	c.account.mu.Lock()
	defer c.account.mu.Unlock()
	c.splits++
	key := splitKey{c.name, c.splits}
	s := c.shared.common.Get(key, func() any { return &splitting{all: make([]int, 2*c.size)} }).(*splitting)
	c.call = Call{Kind: SplitKind, Dst: Of(s.all), Src: mine, places: places}
	if err := c.run(ctx, &c.call); err != nil {
		return nil, err // c.call stays, as others may still read it
	}
	c.call = Call{Kind: SplitKind, Src: mine} // without s.all, for errors of what follows
	c.shared.common.Delete(key)               // all ranks have s
	g, shared, err := choose(s)
	if err != nil {
		c.backend.Abort(err)
		return nil, c.fail(&c.call, err)
	}
	var joined Backend // of a group of two ranks or more
	if shared {
		members := g.members
		if len(members) == 1 {
			members = nil
		}
		if joined, err = c.backend.Split(ctx, members); err != nil {
			return nil, c.fail(&c.call, err)
		}
	}
	if len(g.members) == 0 {
		return nil, nil
	}
	name := fmt.Sprintf("%s/%d%s", c.name, c.splits, suffix)
	return newComm(name, c.shared, joined, slices.Index(g.members, c.rank), g.world, c.memory), nil
}
