package comm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/internal/mem"
)

// A Comm is one rank's end of a communicator: a group of ranks that make the
// same calls in the same order. Calls from several goroutines do not corrupt
// it, but their order would differ between ranks, so use one.
type Comm struct {
	rank, size int
	world      []int // world[r] is the world number of rank r
	name       string
	shared     *shared
	memory     mem.Allocator
	backend    Backend
	queue      queue

	account *account // its lock is held during a call, and guards what follows
	call    Call     // the call in progress; it is kept here so that a call allocates nothing
	simple  Call     // the call in progress when it came from do; Func, counts and rows stay zero
	second  Call     // beside call, the Recv of a SendRecv
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
	world := make([]int, b.Size())
	for r := range world {
		world[r] = r
	}
	c := &Comm{name: "world", shared: newShared()}
	c.fill(b, b.Rank(), world, b.Memory())
	return c
}

func (c *Comm) fill(b Backend, rank int, world []int, memory mem.Allocator) {
	if memory == nil {
		memory = new(mem.System)
	}
	if len(world) == 1 { // nobody to talk to
		b = &solo{world: world[0]}
	}
	c.backend, c.rank, c.size, c.world, c.memory = b, rank, len(world), world, memory
	c.account = c.shared.ledger.open(c)
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

// Do carries out call, and is the one way in: every function of this package
// that communicates calls it. It returns when this rank's buffers may be used
// again. Its error is an *Error.
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

// is reports whether c is a communicator in which this rank has a number, and ranks how many it has, for functions
// whose first call refuses one that is none.
func (c *Comm) is(rank int) bool { return !c.none() && c.Rank() == rank }

func (c *Comm) ranks() int {
	if c.none() {
		return 0
	}
	return c.Size()
}

func noComm(call *Call) error {
	return &Error{Call: call.String(), Site: call.Site(), Rank: -1,
		Err: errors.New("the communicator is nil: this rank is in none of the groups of Split or Group; make the call on ranks that are")}
}

// run carries out call, which is c.call or c.simple.
func (c *Comm) run(ctx context.Context, call *Call) error {
	c.seq++
	if c.err != nil {
		return c.fail(call, fmt.Errorf("the communicator cannot be used after its first error: %w", c.err))
	}
	err := call.check(c.rank, c.size)
	if err == nil && call.special != 0 {
		err = c.adapt(call)
	}
	if err != nil {
		c.backend.Abort(fmt.Errorf("%v: %w", call, err))
		return c.fail(call, err)
	}
	if ctx == nil || ctx.Err() != nil {
		if err := Cancelled(ctx); err != nil {
			c.backend.Abort(err)
			return c.fail(call, err)
		}
	}
	var r *Recording
	if !call.Check {
		c.account.add(call)
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

// adapt makes of a special call, which was checked, one that the backend takes.
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
	e := &Error{Call: call.String(), Site: call.Site(), Comm: c.name, Seq: c.seq, Rank: c.world[c.rank], Err: err}
	if c.err == nil {
		c.err = e
	}
	return e
}

// Split makes communicators of the ranks that give the same color, ordered by
// key and then by rank. All ranks must call it. A rank with a negative color
// joins none and gets nil. A group of one rank makes no shared state.
func (c *Comm) Split(ctx context.Context, color, key int) (*Comm, error) {
	if c.none() {
		return nil, noComm(&Call{Kind: SplitKind, Src: Of(make([]int64, 2))})
	}
	return c.split(ctx, color, key, nil)
}

// split is Split. places, if it is not nil, says what each rank gives.
func (c *Comm) split(ctx context.Context, color, key int, places func(rank int) (color, key int)) (*Comm, error) {
	c.drain()
	c.account.mu.Lock()
	defer c.account.mu.Unlock()
	all, err := c.exchange(ctx, int64(color), int64(key), places)
	if err != nil {
		return nil, err
	}
	var members []int
	sizes := map[int64]int{} // by color
	shared := false
	for r := range c.size {
		its := all[2*r]
		if its < 0 {
			continue
		}
		sizes[its]++
		shared = shared || sizes[its] > 1
		if its == int64(color) {
			members = append(members, r)
		}
	}
	slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(all[2*a+1], all[2*b+1]) })
	return c.derive(ctx, members, shared, fmt.Sprintf("%s/%d:%d", c.name, c.splits, color))
}

// Group makes a communicator of the given ranks of c, in that order. All ranks
// of c must call it with the same list; those outside it get nil.
func (c *Comm) Group(ctx context.Context, ranks []int) (*Comm, error) {
	if c.none() {
		return nil, noComm(&Call{Kind: SplitKind, Src: Of(make([]int64, 2))})
	}
	c.drain()
	c.account.mu.Lock()
	defer c.account.mu.Unlock()
	hash := int64(hashCounts(ranks))
	all, err := c.exchange(ctx, hash, int64(len(ranks)), func(int) (int, int) { return int(hash), len(ranks) })
	if err != nil {
		return nil, err
	}
	for r := range c.size {
		if all[2*r] != all[0] || all[2*r+1] != all[1] {
			return nil, c.refuse(fmt.Errorf("%w: ranks %d and %d gave different lists of ranks to Group, this one %v; give all the same",
				ErrMismatch, c.world[0], c.world[r], ranks))
		}
	}
	seen := make([]bool, c.size)
	for i, r := range ranks {
		if r < 0 || r >= c.size || seen[r] {
			return nil, c.refuse(fmt.Errorf("ranks[%d] of Group is %d, in %v; give each of 0 to %d at most once", i, r, ranks, c.size-1))
		}
		seen[r] = true
	}
	members := slices.Clone(ranks)
	if !slices.Contains(members, c.rank) {
		members = nil
	}
	return c.derive(ctx, members, len(ranks) > 1, fmt.Sprintf("%s/%d", c.name, c.splits))
}

// exchange begins a Split: it gathers two numbers from each rank.
func (c *Comm) exchange(ctx context.Context, a, b int64, places func(rank int) (a, b int)) ([]int64, error) {
	c.splits++
	all := make([]int64, 2*c.size)
	c.call = Call{Kind: SplitKind, Dst: Of(all), Src: Of([]int64{a, b}), places: places}
	return all, c.run(ctx, &c.call)
}

// refuse fails a Split after its exchange.
func (c *Comm) refuse(err error) error {
	c.backend.Abort(err)
	return c.fail(&c.call, err)
}

// derive ends a Split. shared says whether some new group has two ranks.
func (c *Comm) derive(ctx context.Context, members []int, shared bool, name string) (*Comm, error) {
	world := make([]int, len(members))
	for i, r := range members {
		world[i] = c.world[r]
	}
	rank := slices.Index(members, c.rank)
	var b Backend
	if shared {
		ask := members
		if len(members) < 2 {
			ask = nil
		}
		joined, err := c.backend.Split(ctx, ask)
		if err != nil {
			return nil, c.fail(&c.call, err)
		}
		if len(ask) > 0 {
			b = joined
		}
	}
	if len(members) == 0 {
		return nil, nil
	}
	n := &Comm{name: name, shared: c.shared}
	n.fill(b, rank, world, c.memory)
	return n, nil
}
