package comm

import (
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// An account is what one communicator has called. It outlives the communicator,
// for Stats.
type account struct {
	mu     sync.Mutex // guards the Comm too
	kinds  [Kinds]Count
	causes map[Cause]*Count
	alone  [Kinds - PutKind]atomicCount // of the kinds that one rank calls alone; mu does not guard them

	tallies []*Tally // of these too
}

// An atomicCount is a Count that several goroutines add to.
type atomicCount struct{ calls, bytes atomic.Int64 }

func (n *atomicCount) add(bytes int) {
	n.calls.Add(1)
	n.bytes.Add(int64(bytes))
}

func (a *account) add(call *Call) {
	bytes := call.Bytes()
	a.kinds[call.Kind].add(bytes)
	if call.Cause == "" {
		return
	}
	key := Cause{call.Kind, call.Cause}
	n := a.causes[key]
	if n == nil {
		if a.causes == nil {
			a.causes = map[Cause]*Count{}
		}
		n = new(Count)
		a.causes[key] = n
	}
	n.add(bytes)
}

// addTo adds the account to s. It waits for a call in progress.
func (a *account) addTo(s *Stats) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for k, n := range a.kinds {
		s.Kinds[k].Calls += n.Calls
		s.Kinds[k].Bytes += n.Bytes
	}
	for k := range a.alone {
		n := &s.Kinds[PutKind+Kind(k)]
		n.Calls += int(a.alone[k].calls.Load())
		n.Bytes += int(a.alone[k].bytes.Load())
		for _, t := range a.tallies {
			n.Calls += int(t[k].calls.Load())
			n.Bytes += int(t[k].bytes.Load())
		}
	}
	for key, n := range a.causes {
		sum := s.Causes[key]
		sum.Calls += n.Calls
		sum.Bytes += n.Bytes
		s.Causes[key] = sum
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

// open returns an account for c.
func (l *ledger) open(c *Comm) *account {
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

// Stats returns what this rank has called so far on all communicators split
// from c's world, c's own included and those that are no longer used. It waits
// for calls in progress.
func (c *Comm) Stats() Stats { return c.shared.ledger.stats() }
