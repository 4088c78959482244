//go:build linux && !nolibs

package mpi

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/comm/internal/names"
	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/stack"
)

// The ranks of a machine share a control segment, as ranks do that gorun starts: the first of them
// makes it, and the others find it among the files of its process. There each rank keeps its calls
// and what it waits for. A rank that shares no segment with rank 0, since it is on another machine,
// sends it reports. So rank 0 has all of the job: package runtime looks there for ranks that wait
// for each other, and gorun top finds it.

// guardInterval is the time between two looks at control messages of a rank that makes no calls,
// and between two reports.
const guardInterval = 500 * time.Millisecond

// A process tells the other ranks of a machine where this one's segment is.
type process struct {
	machine uint64 // the same for processes that see each other by number; 0: nobody is to look
	pid     int64
	segment int64 // descriptors
	life    int64 // see peers.go
}

// makeSegment makes a segment for this rank alone. Without one, for want of memory or leave, the
// job goes on unguarded.
func (j *job) makeSegment(host string) process {
	s, err := control.CreateAlone(j.size)
	if err != nil {
		return process{}
	}
	j.segment = s
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without it the name has to do
	pids, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return process{}
	}
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s\n%s\n%s", host, boot, pids)
	var life [2]int // plain descriptors: nothing closes them but the end of the process
	if err := unix.Pipe2(life[:], unix.O_CLOEXEC); err != nil {
		return process{}
	}
	return process{h.Sum64(), int64(os.Getpid()), int64(s.Files()[0].Fd()), int64(life[0])}
}

// share replaces this rank's segment by that of the first rank of the machine, and says there that
// this one runs.
func (j *job) share(all []process) {
	mine, first := all[j.rank], j.rank
	for w := range j.rank {
		if mine.machine != 0 && all[w].machine == mine.machine {
			first = w
			break
		}
	}
	shared := first == j.rank
	if !shared {
		if s, err := openSegment(all[first], j.size); err == nil {
			_ = j.segment.Close() // nobody else has it
			j.segment, shared = s, true
		}
	}
	j.reports = j.rank != 0 && (first != 0 || !shared)
	j.segment.SetNames(names.All())
	j.segment.Join(j.rank)
	j.segment.SetPID(j.rank, os.Getpid())
}

// openSegment opens the segment of another process.
func openSegment(p process, ranks int) (*control.Segment, error) {
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", p.pid, p.segment), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return control.OpenAlone(f, ranks)
}

// Segment returns where what the ranks do can be seen, on rank 0 that of all ranks; nil if calls
// are not compared.
func (r *Rank) Segment() *control.Segment { return r.job.segment }

// guard reads control messages while the program makes no calls, and tells rank 0 of this rank.
func (j *job) guard() {
	for range time.Tick(guardInterval) {
		j.mu.Lock()
		if j.closed {
			j.mu.Unlock()
			return
		}
		j.poll()
		if j.reports {
			j.report()
		}
		j.mu.Unlock()
	}
}

// maxReported is how many waits a report has at most. Of their texts so many bytes fit.
const (
	maxReported   = 3
	reportedBytes = 120
)

// report sends rank 0 what has changed. The job's lock is held.
func (j *job) report() {
	now, before := j.segment.Report(j.rank, maxReported), &j.reported
	if now.Calls == before.Calls && now.Beats == before.Beats && now.Moves == before.Moves && now.State == before.State &&
		now.Step == before.Step && now.Saved.Equal(before.Saved) && now.Answer == before.Answer && len(now.Waits) == len(before.Waits) {
		return
	}
	j.reported = now
	for i := range now.Waits {
		w := &now.Waits[i]
		for _, s := range []*string{&w.Text, &w.Site, &w.Untaken} {
			*s = (*s)[:min(len(*s), reportedBytes)]
		}
	}
	text, err := json.Marshal(now)
	if err == nil && len(text) <= controlBytes-controlHead {
		j.post(j.write(controlReport, 0, 0, 0, text), []int{0})
	}
}

// takeReport keeps the report of a rank.
func (j *job) takeReport(from int, text []byte) {
	var its control.Report
	if j.rank == 0 && j.segment != nil && from < j.size && json.Unmarshal(text, &its) == nil {
		j.segment.Copy(from, its)
	}
}

// Ask asks a rank, by world number, whether all its goroutines can only wait; number, above 0, tells
// questions apart. Only rank 0 asks. OnlyWaits of its Segment has the answer later.
func (r *Rank) Ask(rank int, number uint64) {
	j := r.job
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.segment.PID(rank) != 0 { // it sees the segment
		j.segment.Ask(rank, number)
	} else if !j.closed {
		j.post(j.write(controlQuestion, 0, 0, 0, question(number, needs{})), []int{rank})
	}
}

// AskStacks has Options.Stacks called on a rank, by world number, of which it is given.
func (r *Rank) AskStacks(rank int) {
	j := r.job
	if rank == j.rank {
		j.printStacks()
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.closed {
		j.post(j.write(controlStacks, 0, 0, 0, nil), []int{rank})
	}
}

func (j *job) printStacks() {
	if j.stacks != nil {
		j.stacks()
	}
}

// setState says that this rank has come to its end; cause is nil if it ends well.
func (j *job) setState(cause error) {
	if j.segment == nil {
		return
	}
	state := control.Finished
	if cause != nil {
		state = control.Failed
	}
	j.segment.SetState(j.rank, state)
}

// record keeps a call that begins.
func (r *Rank) record(call *backend.Call) {
	if s := r.job.segment; s != nil {
		f := call.Fingerprint()
		s.Log(r.job.rank, control.Call{Comm: r.commNumber(), Seq: r.calls.Load(), What: f.What, Count: f.Count}, call.Bytes())
	}
}

// commNumber is the communicator's number in the segment.
func (r *Rank) commNumber() uint64 {
	if r.id == worldID {
		return r.job.segment.WorldComm()
	}
	return r.id
}

// name says in a report of waits which communicator this is.
func (r *Rank) name() string {
	if r.id == worldID {
		return "world"
	}
	return control.GroupOf(r.world)
}

// beginWait records that call waits since a time, and returns its number.
func (j *job) beginWait(r *Rank, call *backend.Call, since time.Time) int {
	if j.segment == nil {
		return -1
	}
	f := call.Fingerprint()
	return j.segment.BeginWait(j.rank, control.Wait{
		Call:  control.Call{Comm: r.commNumber(), Seq: r.calls.Load(), What: f.What, Count: f.Count},
		Since: since, On: control.Nobody, Text: call.String(), Site: call.Site(), Group: r.name(), Attended: call.Attended(),
	})
}

// beat says that a wait was looked at, and answers what rank 0 asks.
func (j *job) beat(slot int, attended bool) {
	if j.segment == nil {
		return
	}
	j.segment.AttendWait(j.rank, slot, attended)
	j.segment.Beat(j.rank)
	question := j.segment.Question(j.rank)
	if question == 0 || !j.answering.TryLock() { // another goroutine answers
		return
	}
	defer j.answering.Unlock()
	j.segment.Answer(j.rank, question, stack.Acting() == "")
	if j.reports { // rank 0 waits
		j.mu.Lock()
		j.report()
		j.mu.Unlock()
	}
}

// waitsOn says for whom a wait is.
func (j *job) waitsOn(w *wait, on int) {
	if j.segment != nil {
		j.segment.SetWaitOn(j.rank, w.slot, on)
	}
}

// endWait ends the record of a wait.
func (j *job) endWait(w *wait) {
	if j.segment != nil {
		j.segment.EndWait(j.rank, w.slot)
	}
}

// addWaited counts the time for which the program was blocked in a call.
func (j *job) addWaited(call *backend.Call, d time.Duration) {
	if d > 0 && j.segment != nil && call.Attended() {
		j.segment.AddWaited(j.rank, d)
	}
}

// awaiting is a wait of Await. Such calls have no place in the order of a communicator's, so each
// counts as a communicator of its own, and any answer to a probe means that what the other rank
// had sent before has come.
type awaiting struct {
	wait
	began   bool
	on      int
	moves   uint64 // what had moved when this was last looked at
	untaken string // messages that the call does not take
}

// aloneBit marks the numbers of such communicators.
const aloneBit = 1 << 63

// look notes that call has waited for so long now, for rank on.
func (a *awaiting) look(r *Rank, call *backend.Call, on int, waited time.Duration) {
	j, now := r.job, time.Now()
	if j.segment == nil {
		return
	}
	untaken, moves := a.untaken, j.segment.Moves(j.rank)
	if !a.began || moves != a.moves {
		untaken, a.moves = call.NotTaken(), moves
	}
	if a.began && (a.on != on || a.untaken != untaken) {
		j.mu.Lock()
		j.over(&a.wait)
		j.mu.Unlock()
		a.began = false
	}
	if !a.began {
		j.mu.Lock()
		j.probes++
		alone := aloneBit | uint64(j.rank)<<32 | j.probes&(1<<32-1)
		j.mu.Unlock()
		slot := j.segment.BeginWait(j.rank, control.Wait{
			Call:  control.Call{Comm: alone, What: uint64(call.Kind)},
			Since: now.Add(-waited), On: control.Nobody, Text: call.String(), Site: call.Site(), Group: r.name(), Untaken: untaken, Attended: true,
		})
		a.wait, a.began, a.on, a.untaken = wait{slot: slot, next: now.Add(stuckAfter - waited)}, true, on, untaken
		if call.OfAny() {
			a.heard = map[int]bool{}
		}
	}
	j.beat(a.slot, true)
	if now.Before(a.next) {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	never := needs{kind: backend.BarrierKind, number: ^uint64(0)}
	peers := []int{r.world[on]}
	if call.OfAny() {
		peers = slices.DeleteFunc(slices.Clone(r.world), func(peer int) bool { return peer == j.rank || j.ended[peer] != nil })
		a.asked = len(peers)
	}
	j.post(j.write(controlProbe, 1, j.rank, r.id, question(j.ask(&a.wait, now), never)), peers)
}

// end says that the call has ended.
func (a *awaiting) end(r *Rank, call *backend.Call, waited time.Duration) {
	r.job.addWaited(call, waited)
	if !a.began {
		return
	}
	r.job.mu.Lock()
	defer r.job.mu.Unlock()
	r.job.over(&a.wait)
}
