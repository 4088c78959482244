package shm

import (
	goruntime "runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// lookEvery is how many times a waiting rank yields between two looks at the cores on which the
// ranks run. With more ranks than lookEvery it yields once for each of them.
const lookEvery = 16

// maxCores is how many cores a unix.CPUSet has room for.
const maxCores = 8 * int(unsafe.Sizeof(unix.CPUSet{}))

// yield gives this core to others. Where ranks outnumber cores, it moves this rank now and then
// so that they stay evenly divided.
func (r *Rank) yield() {
	if r.yields++; r.yields%max(lookEvery, uint64(r.job.seg.Ranks())) == 0 && r.job.spins == 0 {
		r.spread()
	}
	osYield()
}

// osYield lets other processes have this core.
func osYield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// spread moves this rank to an emptier core if there is one. A collective takes as many
// turns as the fullest core has ranks. The kernel gives a rank that waits the same weight as one
// that works: of four ranks on two cores it often leaves three on one core for 50 ms or longer.
func (r *Rank) spread() {
	seg, me := r.job.seg, r.job.rank
	goruntime.LockOSThread() // it is this thread that moves
	defer goruntime.UnlockOSThread()
	var core uint32
	var usable unix.CPUSet
	if _, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&core)), 0, 0); errno != 0 ||
		unix.SchedGetaffinity(0, &usable) != nil {
		return
	}
	seg.SetCore(me, int(core))
	if to := emptier(&usable, seg.Ranks(), me, seg.Core); to >= 0 && bindTo(to) == nil {
		_ = unix.SchedSetaffinity(0, &usable)
		seg.SetCore(me, to)
	}
}

// emptier returns the core that rank me should move to, -1 if it should stay. It is the usable
// core with the fewest ranks, if the core of me has at least two more. Only the highest rank on
// a core leaves it, and only once the cores of all ranks are known.
func emptier(usable *unix.CPUSet, ranks, me int, coreOf func(rank int) int) int {
	var count [maxCores]uint16
	own := coreOf(me)
	for r := range ranks {
		core := coreOf(r)
		if core < 0 || core >= maxCores || r > me && core == own {
			return -1
		}
		count[core]++
	}
	to := own
	for core := range maxCores {
		if usable.IsSet(core) && count[core] < count[to] {
			to = core
		}
	}
	if count[own] < count[to]+2 {
		return -1
	}
	return to
}

// bindTo moves this thread to a core, and keeps it there.
func bindTo(core int) error {
	var only unix.CPUSet
	only.Set(core)
	return unix.SchedSetaffinity(0, &only)
}
