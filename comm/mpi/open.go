//go:build linux && !nolibs

package mpi

import (
	"fmt"
	"os"
	goruntime "runtime"
	"time"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/cgroup"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// threadSerialized is MPI_THREAD_SERIALIZED, the same in both ABIs.
const threadSerialized = 2

// Open loads an MPI library, starts it and returns this rank's end of its
// world. It may be called once in a process; Close ends what it began.
func Open(o Options) (*Rank, error) {
	r, err := open(o)
	if err != nil {
		return nil, fmt.Errorf("mpi: Open: %w", err)
	}
	return r, nil
}

func open(o Options) (*Rank, error) {
	launch, launched := Detect(os.LookupEnv)
	names := candidates(os.LookupEnv, launch)
	if o.Library != "" {
		names = []string{o.Library}
	}
	if err := quiet(); err != nil {
		return nil, err
	}
	if goruntime.GOMAXPROCS(0) == 1 {
		// A launcher has bound this rank to one core. With one processor Go's scheduler
		// takes it away from every call that lasts 20 µs, and starts a thread to use it.
		goruntime.GOMAXPROCS(2)
	}
	lib, err := load(names)
	if err != nil {
		return nil, err
	}
	if err := lib.chooseWindows(); err != nil {
		return nil, err
	}
	j := &job{
		lib: lib, linger: o.Linger, lost: o.Lost, finished: o.Finished, stacks: o.Stacks, thread: make(chan func()),
		checks: checkingOf(o, os.Getenv(debugVariable)),
		groups: map[uint64]*group{}, asking: map[uint64]bool{}, dead: map[uint64]*backend.AbortError{}, ended: map[int]*ending{},
		questions: map[uint64]*wait{},
	}
	if j.linger == 0 {
		j.linger = 5 * time.Second
	}
	unplugged := lib.unplugged(launch, os.LookupEnv)
	if unplugged != nil && lib.abi == &openMPI {
		return nil, unplugged
	}
	go j.serve()
	if err := j.onThread(j.start); err != nil {
		return nil, err
	}
	if err := j.onThread(j.acquaint); err != nil {
		return nil, err
	}
	switch {
	case !launched || launch.Size == j.size:
	case unplugged != nil: // MPICH can be built to do without
		return nil, unplugged
	case launch.Launcher == "env":
		return nil, fmt.Errorf("RANK and WORLD_SIZE say rank %d of %d, and %s, loaded as %s, sees %d: "+
			"torchrun and the like start no ranks of MPI; start the program with gorun, mpirun, mpiexec or srun, or unset the two",
			launch.Rank, launch.Size, lib.version, lib.name, j.size)
	default:
		return nil, fmt.Errorf("the launcher (%s) started %d ranks and %s, loaded as %s, sees %d: the two do not belong together; "+
			"name the launcher's own library in %s",
			launch.Launcher, launch.Size, lib.version, lib.name, j.size, libraryVariable)
	}
	world := ints.Range(j.size)
	if j.segment != nil {
		go j.guard()
	}
	return j.join(&Rank{job: j, group: newGroup(worldID, lib.handles[commWorld], j.rank, j.size), me: j.rank, world: world,
		checks: j.checks, unordered: o.Unordered, most: maxBytes, far: farBytes, levels: j.levels(world)}), nil
}

// serve runs functions on one thread: the one that starts and ends the library.
func (j *job) serve() {
	goruntime.LockOSThread()
	for f := range j.thread {
		f()
	}
}

// onThread runs f there.
func (j *job) onThread(f func() error) error {
	done := make(chan error, 1)
	j.thread <- func() { done <- f() }
	return <-done
}

// start begins the library and this job's control communicator.
func (j *job) start() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	l, cell := j.lib, &j.cells
	at := func(i int) uintptr { return pointer(&j.cells[i]) }
	if err := l.call(initialized, at(0)); err != nil {
		return err
	}
	if cell[0] != 0 {
		return fmt.Errorf("%s has been started already in this process; call Open once", l.version)
	}
	if err := l.call(initThread, 0, 0, threadSerialized, at(0)); err != nil {
		return err
	}
	if cell[0] < threadSerialized {
		return fmt.Errorf("%s gives thread level %d and MPI_THREAD_SERIALIZED (%d) is needed; use a build of it with threads", l.version, cell[0],
			threadSerialized)
	}
	world := l.handles[commWorld]
	if err := l.call(commSetErrhandler, world, l.handles[errorsReturn]); err != nil {
		return err
	}
	if err := l.call(commRank, world, at(1)); err != nil {
		return err
	}
	if err := l.call(commSize, world, at(2)); err != nil {
		return err
	}
	j.rank, j.size = int(cell[1]), int(cell[2])
	if err := l.call(commDup, world, pointer(&j.made)); err != nil {
		return err
	}
	j.control = j.made
	j.yields = l.yields()
	if err := j.askTags(); err != nil {
		return err
	}
	return j.listen()
}

// An introduction is what the ranks tell each other when they start.
type introduction struct {
	location
	checks  uint64
	process // zero if calls are not compared
}

// acquaint tells every rank on which host and which of its cores the others may
// run, and sets by it how j waits. Ranks that check calls in different ways would wait
// for each other's notes.
func (j *job) acquaint() error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	me := introduction{location: newLocation(name), checks: uint64(j.checks)}
	if j.checks != checkNone {
		me.process = j.makeSegment(name)
	}
	mine, all := []introduction{me}, make([]introduction, j.size)
	j.mu.Lock()
	defer j.mu.Unlock()
	size, bytes := unsafe.Sizeof(introduction{}), j.lib.handles[typeByte]
	if err := j.lib.call(allgather, pointer(unsafe.SliceData(mine)), size, bytes, pointer(unsafe.SliceData(all)), size, bytes,
		j.control); err != nil {
		return err
	}
	locations, processes := make([]location, j.size), make([]process, j.size)
	for i, its := range all {
		locations[i], processes[i] = its.location, its.process
		j.hosts = append(j.hosts, its.host)
		if its.checks != all[0].checks {
			return fmt.Errorf("rank %d compares calls %v and rank %d %v; give all ranks the same %s and Options",
				0, checking(all[0].checks), i, checking(its.checks), debugVariable)
		}
	}
	j.spins = patience(mine[0].location, locations, cgroup.CPUs(""))
	if j.segment != nil {
		j.share(processes)
		go j.watchPeers(j.peersOf(processes))
	}
	return nil
}

// Library returns what the MPI library calls itself.
func (r *Rank) Library() string { return r.job.lib.version }
