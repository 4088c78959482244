package comm

import (
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gorun-spmd/gorun/internal/release"
)

// An account counts the calls of one communicator. It outlives the communicator,
// for Stats.
type account struct {
	mu     sync.Mutex // guards the Comm too
	queue  queue
	kinds  [Kinds]Count
	causes map[Cause]*Count

	alone   Tally    // of calls that one rank makes alone; several goroutines add to it, and mu does not guard it
	tallies []*Tally // of such calls too, see Internals.Tally
}

// add counts a call.
func (a *account) add(kind Kind, cause string, bytes int) {
	a.kinds[kind].add(Count{1, bytes})
	if cause == "" {
		return
	}
	key := Cause{kind, cause}
	n := a.causes[key]
	if n == nil {
		if a.causes == nil {
			a.causes = map[Cause]*Count{}
		}
		n = new(Count)
		a.causes[key] = n
	}
	n.add(Count{1, bytes})
}

// addTo adds the account to s. It waits for a call in progress.
func (a *account) addTo(s *Stats) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for k, n := range a.kinds {
		s.Kinds[k].add(n)
	}
	a.alone.addTo(s)
	for _, t := range a.tallies {
		t.addTo(s)
	}
	for key, n := range a.causes {
		sum := s.Causes[key]
		sum.add(*n)
		s.Causes[key] = sum
	}
}

// A Tally counts calls that this rank makes alone. The caller's own lock guards Add: an atomic addition takes
// several times as long.
type Tally [Kinds - PutKind]struct{ calls, bytes atomic.Uint64 }

// Tally returns a Tally that the communicator's Stats include.
func (i Internals) Tally() *Tally {
	a, t := i.c.account, new(Tally)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tallies = append(a.tallies, t)
	return t
}

// EndTally ends a Tally, whose counts stay in the Stats.
func (i Internals) EndTally(t *Tally) {
	a := i.c.account
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tallies = slices.DeleteFunc(a.tallies, func(other *Tally) bool { return other == t })
	for k := range t {
		a.alone[k].calls.Add(t[k].calls.Load())
		a.alone[k].bytes.Add(t[k].bytes.Load())
	}
}

// Add counts a call of a kind.
func (t *Tally) Add(kind Kind, bytes int) {
	n := &t[kind-PutKind]
	release.Store(&n.calls, n.calls.Load()+1)
	release.Store(&n.bytes, n.bytes.Load()+uint64(bytes))
}

// addShared is Add for goroutines that no lock keeps apart.
func (t *Tally) addShared(kind Kind, bytes int) {
	n := &t[kind-PutKind]
	n.calls.Add(1)
	n.bytes.Add(uint64(bytes))
}

func (t *Tally) addTo(s *Stats) {
	for k := range t {
		s.Kinds[PutKind+Kind(k)].add(Count{int(t[k].calls.Load()), int(t[k].bytes.Load())})
	}
}

// A ledger holds the accounts of all communicators of one world on one rank. It has no
// pointer to a Comm, so that the garbage collector can free one that is unused. The account
// of such a Comm is added to past.
type ledger struct {
	mu       sync.Mutex
	accounts map[*account]struct{}
	past     Stats
}

// add returns an account for c.
func (l *ledger) add(c *Comm) *account {
	a := new(account)
	l.mu.Lock()
	l.accounts[a] = struct{}{}
	l.mu.Unlock()
	runtime.AddCleanup(c, l.close, a)
	return a
}

// close adds the account of a communicator that is unused to past.
func (l *ledger) close(a *account) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.addTo(&l.past)
	delete(l.accounts, a)
}

// stats returns the sum of all accounts. It does not hold the ledger's lock while it waits
// for calls in progress, since Split opens an account. An account that is closed meanwhile is
// counted once, as an open one.
func (l *ledger) stats() Stats {
	l.mu.Lock()
	s := Stats{Kinds: l.past.Kinds, Causes: maps.Clone(l.past.Causes)}
	open := slices.Collect(maps.Keys(l.accounts))
	l.mu.Unlock()
	for _, a := range open {
		a.addTo(&s)
	}
	return s
}

// open returns the accounts of the communicators that may be in use.
func (l *ledger) open() []*account {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.accounts))
}

// Stats returns what this rank has called so far on all communicators split
// from c's world, c's own included and those that are no longer used. It waits
// for calls in progress.
func (c *Comm) Stats() Stats { return c.shared.ledger.stats() }
