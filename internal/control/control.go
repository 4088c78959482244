// Package control is the shared memory through which a launcher and the ranks
// of one host know of each other: which ranks have ended and why, where each rank's
// memory lies, and which calls each has made last.
//
// The launcher creates a Segment and hands its files to the children it
// starts; each rank opens them. The files have no name in a file system: when
// the last process that has them open ends, they are gone.
//
//	launcher: Create → Files → (start) → Ended, Error → Close
//	rank:     Open → Join, SetState, SetError, the rest through comm/shm
//
// Whatever a rank writes, the launcher's methods neither fail nor read outside
// the segment: lengths are cut, text is made valid.
package control

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/mem"
)

// MaxRanks is how many ranks one segment can serve.
const MaxRanks = 4096

// addressBytes is how much of its 128 TiB of address space a rank spends on arenas.
const addressBytes = 32 << 40

// hugeBytes is the size of a huge page on the machines we know.
const hugeBytes = 2 << 20

// Options are the launcher's choices. The zero value is usable.
type Options struct {
	// Cores is how many cores the ranks together may use. If there are no more
	// ranks than cores, a waiting rank spins. 0 means GOMAXPROCS.
	Cores int
	// ArenaBytes is the most shared memory that one rank can allocate. An arena
	// takes memory only as it is used. 0 means the machine's memory; it means less
	// where the arenas of all ranks would not fit one rank's address space, or would
	// take more than half of what a limit on it (ulimit -v) leaves.
	ArenaBytes int
	// MemoryBytes is the most shared memory that all ranks together can allocate: beyond
	// it they get an error instead of being killed. 0 means 15/16 of the machine's
	// memory, or of the control groups' limit where that is less.
	MemoryBytes int
}

// A Segment is one process' mapping of the control segment and, in a rank, of
// all ranks' arenas. Its methods may be called from any goroutine, but none
// after Close.
type Segment struct {
	files  []*os.File // the launcher's
	base   unsafe.Pointer
	ranks  int
	arenas unsafe.Pointer // in a rank: the arena of rank 0, followed by the others'
	arena  int            // bytes of each arena
	open   sync.Mutex     // held by WhileOpen and Close
}

// A State is how far a rank's program is, as the rank says.
type State uint32

// The states, in order.
const (
	Starting State = iota
	Running
	Finished
	Failed
)

// String returns the name in lower case.
func (s State) String() string {
	if s > Failed {
		return "unknown"
	}
	return [...]string{"starting", "running", "finished", "failed"}[s]
}

// Create makes the segment, and one file with the arenas of n ranks. So a rank has one
// descriptor and one mapping for all arenas, and has pages and page tables only for the parts
// that it touches. The files are closed on exec: hand them on as os/exec's ExtraFiles.
func Create(n int, o Options) (*Segment, error) {
	if n < 1 || n > MaxRanks {
		return nil, fmt.Errorf("control: Create: %d ranks; give 1 to %d", n, MaxRanks)
	}
	if o.Cores == 0 {
		o.Cores = goruntime.GOMAXPROCS(0)
	}
	if o.ArenaBytes == 0 || o.MemoryBytes == 0 {
		space, err := addressSpace(addressLimit(), n)
		if err != nil {
			return nil, err
		}
		machine, err := mem.ReadMachine("")
		if err != nil {
			return nil, err
		}
		o.ArenaBytes = cmp.Or(o.ArenaBytes, min(machine.Total, space))
		o.MemoryBytes = cmp.Or(o.MemoryBytes, machine.Limit-machine.Limit/16)
	}
	unit := page
	if o.ArenaBytes >= hugeBytes {
		unit = hugeBytes // each arena can begin with a huge page
	}
	o.ArenaBytes = (o.ArenaBytes + unit - 1) &^ (unit - 1)
	s, err := newSegment(n, o)
	if err != nil {
		return nil, fmt.Errorf("control: Create: %w", err)
	}
	f, err := memfd("gorun-arenas", n*o.ArenaBytes)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("control: Create: %w", err), s.Close())
	}
	s.files, s.arena = append(s.files, f), o.ArenaBytes
	return s, nil
}

// CreateAlone makes the segment of n ranks that have no arenas: those of another launcher. Files
// returns the control file alone.
func CreateAlone(n int) (*Segment, error) {
	if n < 1 || n > MaxRanks {
		return nil, fmt.Errorf("control: CreateAlone: %d ranks, and at most %d can be watched", n, MaxRanks)
	}
	s, err := newSegment(n, Options{Cores: goruntime.GOMAXPROCS(0)})
	if err != nil {
		return nil, fmt.Errorf("control: CreateAlone: %w", err)
	}
	return s, nil
}

// newSegment makes the control file, and maps it.
func newSegment(n int, o Options) (*Segment, error) {
	f, err := memfd("gorun-control", totalBytes)
	if err != nil {
		return nil, err
	}
	s := &Segment{ranks: n, files: []*os.File{f}}
	if s.base, err = mapFile(f, totalBytes); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	h := s.header()
	h.version, h.ranks, h.cores, h.arenaBytes = version, uint64(n), uint64(o.Cores), uint64(o.ArenaBytes)
	h.memoryBytes = uint64(o.MemoryBytes)
	h.next.Store(regionBase(n))
	h.magic = magic
	return s, nil
}

// Files returns the control file and the file of the arenas. They belong to the
// segment and are closed with it.
func (s *Segment) Files() []*os.File { return s.files }

// startDirectly tells the user what to do if a file that Open is given is not Create's.
const startDirectly = "start the program with the same version of gorun, and with nothing in between that closes descriptors, " +
	"as mpirun does, or without the GORUN_ variables"

// Open maps the files that Create made for ranks ranks into the process of one of them. The
// files may be closed afterwards.
func Open(control, arenas *os.File, ranks, rank int) (*Segment, error) {
	if rank < 0 || rank >= ranks {
		return nil, fmt.Errorf("control: Open: rank %d of %d; the environment is damaged", rank, ranks)
	}
	s, err := OpenAlone(control, ranks)
	if err != nil {
		return nil, err
	}
	s.arena = int(min(s.header().arenaBytes, addressBytes))
	if err := checkSize(arenas, ranks*s.arena); err != nil {
		return nil, errors.Join(fmt.Errorf("control: Open: %w; %s", err, startDirectly), s.Close())
	}
	if s.arenas, err = mapArenas(arenas, ranks*s.arena); err != nil {
		return nil, errors.Join(fmt.Errorf("control: Open: %w", err), s.Close())
	}
	return s, nil
}

// OpenAlone maps a control file of Create or CreateAlone, without the arenas. The file may be closed
// afterwards.
func OpenAlone(control *os.File, ranks int) (*Segment, error) {
	if err := checkSize(control, totalBytes); err != nil {
		return nil, fmt.Errorf("control: Open: %w; %s", err, startDirectly)
	}
	base, err := mapFile(control, totalBytes)
	if err != nil {
		return nil, fmt.Errorf("control: Open: %w", err)
	}
	s := &Segment{base: base, ranks: ranks}
	h := s.header()
	switch {
	case h.magic != magic:
		err = fmt.Errorf("control: Open: %s is not a control segment of gorun", control.Name())
	case h.version != version:
		err = fmt.Errorf("control: Open: the launcher's layout is %#x and this program's %#x; build both from the same version of gorun",
			h.version, version)
	case h.ranks != uint64(ranks):
		err = fmt.Errorf("control: Open: the segment has %d ranks and the environment %d", h.ranks, ranks)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close unmaps the segment and closes the files. Memory of the arenas must not
// be used any more.
func (s *Segment) Close() error {
	s.open.Lock()
	defer s.open.Unlock()
	var errs []error
	if s.base != nil {
		errs = append(errs, unmap(s.base, totalBytes))
	}
	if s.arenas != nil {
		errs = append(errs, unmap(s.arenas, s.ranks*s.arena))
	}
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	s.base, s.arenas, s.files = nil, nil, nil
	return errors.Join(errs...)
}

// WhileOpen calls f unless the segment has been closed. Close waits for f to return.
func (s *Segment) WhileOpen(f func()) {
	s.open.Lock()
	defer s.open.Unlock()
	if s.base != nil {
		f()
	}
}

func (s *Segment) header() *header { return (*header)(s.base) }

func (s *Segment) block(rank int) *block {
	if rank < 0 || rank >= s.ranks {
		panic(fmt.Sprintf("control: rank %d of %d", rank, s.ranks))
	}
	return (*block)(unsafe.Add(s.base, page+rank*int(blockStride)))
}

// Ranks returns the number of ranks.
func (s *Segment) Ranks() int { return s.ranks }

// Cores returns how many cores the ranks together may use, at least 1.
func (s *Segment) Cores() int { return max(1, int(min(s.header().cores, MaxRanks))) }

// Alarm returns a counter that grows whenever a rank ends or a communicator is aborted.
// While it stays the same, nobody has to look for either.
func (s *Segment) Alarm() *atomic.Uint32 { return &s.header().alarm }

// Ended says that rank's process has ended; cause is "" if it ended without
// an error. Pending and later calls of other ranks that need this rank fail with cause.
// Only the first call of Ended for a rank counts.
func (s *Segment) Ended(rank int, cause string) {
	b := s.block(rank)
	if b.ended.set.Load() == 0 {
		b.ended.size.Store(uint32(copy(b.ended.data[:], cause)))
		b.ended.set.Store(1)
	}
	s.header().alarm.Add(1)
}

// HasEnded reports whether Ended was called for rank, and its cause.
func (s *Segment) HasEnded(rank int) (cause string, ended bool) {
	b := s.block(rank)
	if b.ended.set.Load() == 0 {
		return "", false
	}
	return readText(b.ended.data[:], b.ended.size.Load()), true
}

// Join says that this process is rank and runs. It reports whether it is the first process to
// say so.
func (s *Segment) Join(rank int) bool {
	return s.block(rank).state.CompareAndSwap(uint32(Starting), uint32(Running))
}

// Fail says that the process of rank, which runs, has ended: its state becomes Failed. It reports
// whether rank by is the first to say so of a rank that had not ended itself. by then says why, by
// Ended. If by ends before that, another rank may take that over by TakeOver.
func (s *Segment) Fail(rank, by int) bool {
	b := s.block(rank)
	if !b.state.CompareAndSwap(uint32(Running), uint32(Failed)) {
		return false
	}
	b.announcer.Store(int64(by) + 1)
	return true
}

// Announcer returns the rank for which Fail returned true; ok is false if none has called it.
func (s *Segment) Announcer(rank int) (by int, ok bool) {
	n := s.block(rank).announcer.Load()
	return int(n) - 1, n > 0
}

// TakeOver reports whether rank by is now to say why rank has ended, and not rank from, which has
// ended too.
func (s *Segment) TakeOver(rank, from, by int) bool {
	return s.block(rank).announcer.CompareAndSwap(int64(from)+1, int64(by)+1)
}

// SetState sets rank's state.
func (s *Segment) SetState(rank int, state State) { s.block(rank).state.Store(uint32(state)) }

// State returns rank's state.
func (s *Segment) State(rank int) State { return min(State(s.block(rank).state.Load()), Failed+1) }

// SetCore says which core rank runs on.
func (s *Segment) SetCore(rank, core int) { s.block(rank).core.Store(uint32(core) + 1) }

// Core returns the core of the last SetCore for rank, -1 if there was none.
func (s *Segment) Core(rank int) int { return int(s.block(rank).core.Load()) - 1 }

// SetPID says which process rank is, where no launcher knows that. PID returns it, 0 if it is not known.
func (s *Segment) SetPID(rank, pid int) { s.block(rank).pid.Store(int64(pid)) }
func (s *Segment) PID(rank int) int     { return int(s.block(rank).pid.Load()) }

// SetError records why and when rank fails; the time is that of the call. Only the first call
// for a rank counts. A text of more than 16 KiB loses its end.
func (s *Segment) SetError(rank int, text string) {
	b := s.block(rank)
	if !b.failure.set.CompareAndSwap(0, 1) {
		return
	}
	b.errorAt.Store(time.Now().UnixNano())
	b.failure.size.Store(uint32(copy(b.failure.data[:], text)))
	b.failure.set.Store(2)
}

// Error returns the text and the time of rank's SetError; "" and the zero time
// if it has not called it.
func (s *Segment) Error(rank int) (text string, at time.Time) {
	b := s.block(rank)
	if b.failure.set.Load() != 2 {
		return "", time.Time{}
	}
	return readText(b.failure.data[:], b.failure.size.Load()), time.Unix(0, b.errorAt.Load())
}

// readText copies at most size bytes and makes them valid text.
func readText(data []byte, size uint32) string {
	return strings.ToValidUTF8(string(data[:min(int(size), len(data))]), "\uFFFD")
}
