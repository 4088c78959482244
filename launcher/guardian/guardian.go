//go:build linux

package guardian

import (
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	goruntime "runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/launcher/machine"
	"github.com/gorun-spmd/gorun/launcher/proc"
)

// Name is the argv[0] of the guardian and of its keeper. A process with this name is one of the
// two, whatever its other arguments are.
const Name = "gorun-guardian"

// socketFD is the guardian's descriptor of its socket to the launcher.
const socketFD = 3

// Main is the main function of the guardian and of its keeper; ok is false if args, the
// command line of this process, is neither's.
func Main(args []string) (status int, ok bool) {
	switch {
	case len(args) == 0 || filepath.Base(args[0]) != Name:
		return 0, false
	case len(args) == 3 && args[1] == keeper:
		return keep(args[2]), true
	}
	return guard(), true
}

// A guardian starts the ranks and reaps every process below it. It obeys the
// launcher. When the launcher is gone, it kills all processes below it and ends.
type guardian struct {
	out  *conn
	spec Spec

	mu      sync.Mutex     // held to fork, to reap and to signal, so that a signalled process id is still ours
	rankOf  map[int]int    // by process id
	pids    []int          // by rank; 0 before it started and after it was reaped
	next    int            // the rank to start next
	early   []Command      // signals to all ranks from before the last rank started; later ranks get them too
	stopped []proc.Process // the processes that stop has stopped
	alive   int
	killing bool
}

// guard is the guardian's main function; it returns its exit status.
func guard() int {
	drainSignals()
	in := os.NewFile(socketFD, "launcher")
	messages := gob.NewDecoder(in)
	g := &guardian{out: newConn(in), rankOf: map[int]int{}}
	if err := messages.Decode(&g.spec); err != nil {
		fmt.Fprintf(os.Stderr, "%s: started without a launcher; run gorun instead\n", Name)
		return 2
	}
	for fd := socketFD; fd < g.spec.Top; fd++ {
		unix.CloseOnExec(fd)
	}
	g.pids = make([]int, len(g.spec.Ranks))
	if err := proc.BecomeSubreaper(); err != nil {
		fmt.Fprintf(os.Stderr, "gorun: children of ranks may outlive the job: prctl: %v\n", err)
	}
	done := make(chan struct{})
	go g.work(done)
	go g.obey(messages)
	<-done
	return 0
}

// drainSignals keeps signals that are meant for the launcher from ending or
// stopping this process. Notify and not Ignore: an ignored signal stays ignored
// through exec, a caught one has its default action again. A signal that was
// ignored before (nohup) is left alone and so reaches the ranks as ignored.
func drainSignals() {
	c := make(chan os.Signal, 8)
	for _, s := range []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
		unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGPIPE, unix.SIGALRM} {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	go func() {
		for range c {
		}
	}()
}

// work starts all ranks, then reaps until no descendant is left. It keeps one
// thread to itself to the end: a parent-death signal is sent when the thread that
// forked ends, not the process.
func (g *guardian) work(done chan<- struct{}) {
	goruntime.LockOSThread()
	relaxTimers(len(g.spec.Ranks), machine.Cores())
	made, err := g.spec.makeTemp()
	if err != nil {
		var errno syscall.Errno
		errors.As(err, &errno)
		_ = g.out.send(Event{Kind: RankRefused, Errno: errno})
		g.killing = true
	}
	for r := range g.spec.Ranks {
		g.start(r)
	}
	g.closeStdio()
	for {
		// Wait until something can be reaped, without reaping it: that needs the lock.
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == unix.EINTR {
			continue
		}
		if !g.reap() {
			break
		}
	}
	for _, folder := range made {
		_ = os.RemoveAll(folder)
	}
	_ = g.out.send(Event{Kind: AllGone})
	close(done)
}

// closeStdio closes the guardian's copies of the ranks' standard streams: a pipe to a rank that
// has ended must have no other reader.
func (g *guardian) closeStdio() {
	closed := map[int]bool{}
	for _, it := range g.spec.Ranks {
		for _, fd := range it.Stdio {
			if fd > socketFD && !closed[fd] {
				closed[fd] = true
				unix.Close(fd)
			}
		}
	}
}

// makeTemp makes the folders and files for the ranks and returns the folders that it has
// made. It fails if a folder exists already.
func (s *Spec) makeTemp() (made []string, err error) {
	for _, folder := range s.Temp {
		if err := os.Mkdir(folder, 0o700); err != nil {
			return made, err
		}
		made = append(made, folder)
	}
	for _, f := range s.Files {
		if err := os.WriteFile(f.Path, []byte(f.Text), 0o666); err != nil {
			return made, err
		}
	}
	return made, nil
}

// start forks rank r.
func (g *guardian) start(r int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.next = r + 1
	if g.killing {
		return
	}
	it := &g.spec.Ranks[r]
	a := &g.spec.Apps[it.App]
	files := make([]uintptr, 0, 3+len(it.Inherit))
	for _, fd := range it.Stdio {
		files = append(files, uintptr(fd))
	}
	for _, fd := range it.Inherit {
		files = append(files, uintptr(fd))
	}
	if it.CPUs != nil {
		bind(it.CPUs)
	}
	pid, err := syscall.ForkExec(a.Path, a.Argv, &syscall.ProcAttr{
		Dir:   a.Dir,
		Env:   append(it.Env, a.Env...),
		Files: files,
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		errno, _ := err.(syscall.Errno)
		_ = g.out.send(Event{Kind: RankRefused, Rank: r, Errno: errno})
		return
	}
	g.pids[r], g.rankOf[pid] = pid, r
	g.alive++
	_ = g.out.send(Event{Kind: RankStarted, Rank: r, PID: pid})
	for _, c := range g.early {
		c.sendTo(pid)
	}
}

// reap collects every child that has ended, and kills the others once all ranks have ended or
// the job is to be killed. It returns false when there is no child left.
func (g *guardian) reap() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		var status syscall.WaitStatus
		var used syscall.Rusage
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, &used)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return false
		}
		if pid == 0 {
			break
		}
		if r, ok := g.rankOf[pid]; ok {
			delete(g.rankOf, pid)
			g.pids[r] = 0
			g.alive--
			_ = g.out.send(Event{Kind: RankEnded, Rank: r, PID: pid, Status: status, At: time.Now(),
				CPU: time.Duration(used.Utime.Nano() + used.Stime.Nano())})
		}
	}
	if g.killing || g.alive == 0 {
		proc.KillChildren(0)
	}
	return true
}

// obey carries out the launcher's commands. When the launcher is gone, it kills all processes.
func (g *guardian) obey(messages *gob.Decoder) {
	for {
		var c Command
		if err := messages.Decode(&c); err != nil {
			g.kill()
			return
		}
		switch c.Action {
		case SignalGroups, SignalRanks:
			g.signal(c)
			if c.Signal == syscall.SIGCONT {
				g.resume()
			}
		case SignalRank:
			g.signalOne(c.Rank, c.Signal)
		case ContinueRanks:
			g.wake()
		case StopRanks:
			g.signal(Command{Action: SignalGroups, Signal: syscall.SIGTSTP})
			time.Sleep(stopDelay)
			g.signal(Command{Action: SignalGroups, Signal: syscall.SIGSTOP})
			g.stop()
			_ = g.out.send(Event{Kind: RanksStopped})
		case KillAll:
			g.kill()
		}
	}
}

// stopDelay is how long a rank that catches SIGTSTP may work before SIGSTOP.
const stopDelay = 20 * time.Millisecond

// signal carries out SignalGroups and SignalRanks.
func (g *guardian) signal(c Command) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next < len(g.spec.Ranks) {
		g.early = append(g.early, c)
	}
	for _, pid := range g.pids {
		if pid != 0 {
			c.sendTo(pid)
		}
	}
}

// sendTo sends the signal of SignalGroups or SignalRanks to a rank that is not
// reaped yet.
func (c Command) sendTo(pid int) {
	if c.Action == SignalGroups {
		pid = -pid
	}
	_ = syscall.Kill(pid, c.Signal)
}

// stop stops the processes that ranks have started in other process groups, as MPICH's mpiexec
// does with its ranks.
func (g *guardian) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range proc.Descendants() {
		if p.State != 'T' && p.State != 't' && p.State != 'Z' {
			g.stopped = append(g.stopped, p)
			_ = syscall.Kill(p.PID, syscall.SIGSTOP)
		}
	}
}

// resume continues the processes that stop has stopped.
func (g *guardian) resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	buf := make([]byte, 1024)
	for _, p := range g.stopped {
		if now, ok := proc.Read(p.PID, buf); ok && now.Start == p.Start {
			_ = syscall.Kill(p.PID, syscall.SIGCONT)
		}
	}
	g.stopped = nil
}

// wake carries out ContinueRanks.
func (g *guardian) wake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	buf := make([]byte, 1024)
	for _, pid := range g.pids {
		if pid == 0 {
			continue
		}
		if p, ok := proc.Read(pid, buf); ok && p.State == 'T' {
			_ = syscall.Kill(-pid, syscall.SIGCONT)
		}
	}
}

// signalOne sends s to rank r, and continues it if it is stopped: a stopped process
// gets no other signal.
func (g *guardian) signalOne(r int, s syscall.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r >= 0 && r < len(g.pids) && g.pids[r] != 0 {
		_ = syscall.Kill(g.pids[r], s)
		_ = syscall.Kill(g.pids[r], syscall.SIGCONT)
	}
}

// kill ends every descendant, and never returns. reap kills those that become children only
// when their parents have died. kill repeats, because a process may fork while the process table
// is read.
func (g *guardian) kill() {
	g.mu.Lock()
	g.killing = true
	g.mu.Unlock()
	g.signal(Command{Action: SignalGroups, Signal: syscall.SIGKILL})
	for {
		g.mu.Lock()
		proc.KillChildren(0)
		g.mu.Unlock()
		time.Sleep(killInterval)
	}
}

// killInterval is the time between two looks for processes that escaped kill.
const killInterval = 50 * time.Millisecond

// bind restricts the calling thread, and the processes that it forks, to the given CPUs. If the
// kernel refuses the mask, only speed suffers.
func bind(cpus []int) {
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	_ = unix.SchedSetaffinity(0, &set)
}

// crowdedCore is the number of ranks on a core above which the kernel may delay their timers.
const crowdedCore = 64

// turn is about how long a rank keeps a core when ranks wait for each other, caches cold.
const turn = 200 * time.Microsecond

// relaxTimers lets timers of the processes that the calling thread forks fire later by about the time
// in which all ranks of a core have their turn, if there are many. Go's runtime looks after each process
// by a timer: every 20 µs after a system call, every 10 ms at least. With hundreds of processes on a core
// these looks would take most of it. If the kernel refuses, only speed suffers.
func relaxTimers(ranks, cores int) {
	if each := ranks / cores; each > crowdedCore {
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(time.Duration(each)*turn), 0, 0, 0)
	}
}
