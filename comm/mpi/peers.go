//go:build linux && !nolibs

package mpi

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// A process that dies does not tell the others. So each rank has a pipe that nobody writes to, and
// the others on its machine open its reading end, which the kernel hangs up when it closes the dead
// process's files: earlier than its parent can wait for it. The first to see one end says so: at
// once, since some launchers kill the rest of the job within a millisecond, and then to all ranks in
// the dead one's stead. If it is killed before that, another takes it over. Ends that follow the
// first one are not said: the launcher makes them.

// maxPeers is how many processes a rank watches.
const maxPeers = 512

// A peer is a rank of this machine.
type peer struct {
	rank, pid, fd int // fd is the end of its pipe
	gone          bool
}

// peersOf returns the ranks of this machine whose processes can be watched.
func (j *job) peersOf(all []process) (peers []peer) {
	mine := all[j.rank]
	for w, its := range all {
		if w == j.rank || mine.machine == 0 || its.machine != mine.machine || len(peers) == maxPeers {
			continue
		}
		if fd, err := unix.Open(fmt.Sprintf("/proc/%d/fd/%d", its.pid, its.life), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
			peers = append(peers, peer{rank: w, pid: int(its.pid), fd: fd})
		}
	}
	return peers
}

// watchPeers waits for processes to end.
func (j *job) watchPeers(peers []peer) {
	fds := make([]unix.PollFd, len(peers))
	for i, p := range peers {
		fds[i] = unix.PollFd{Fd: int32(p.fd)} // POLLHUP always counts
	}
	for left := len(fds); left > 0; {
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return
		}
		for i := range fds {
			if fds[i].Revents == 0 || fds[i].Fd < 0 {
				continue
			}
			peers[i].gone = true
			if j.segment.Fail(peers[i].rank, j.rank) { // else it has told the others itself, or another rank does
				j.announceDeath(&peers[i], peers)
			}
			_ = unix.Close(peers[i].fd)
			fds[i].Fd = -1 // poll passes it over
			left--
		}
		j.takeOver(peers)
	}
}

// takeOver takes over what ranks that have ended were to say of others.
func (j *job) takeOver(peers []peer) {
	for i := range peers {
		p := &peers[i]
		announcer, ok := j.segment.Announcer(p.rank)
		if _, said := j.segment.HasEnded(p.rank); !p.gone || !ok || said {
			continue
		}
		over := slices.ContainsFunc(peers, func(q peer) bool { return q.rank == announcer && q.gone })
		if over && j.segment.TakeOver(p.rank, announcer, j.rank) {
			j.announceDeath(p, peers)
		}
	}
}

// announceDeath says that a process has ended that has not done so itself.
func (j *job) announceDeath(p *peer, peers []peer) {
	how, status := howEnded(p.pid)
	err := &backend.EndedError{Rank: p.rank, Cause: j.describeDeath(p.rank, how)}
	follows := slices.ContainsFunc(peers, func(q peer) bool { _, said := j.segment.HasEnded(q.rank); return said })
	if j.lost != nil && !follows {
		j.lost(err, status)
	}
	j.segment.Ended(p.rank, err.Cause)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return
	}
	j.markEnded(p.rank, err.Cause, true, true)
	data := j.write(controlEnd, endDied, 0, 0, []byte(err.Cause))
	binary.LittleEndian.PutUint32(data[4:], uint32(p.rank)) // in its stead
	j.post(data, ints.Range(j.size))
}

// describeDeath says how the process of a rank has ended, and in which call.
func (j *job) describeDeath(rank int, how string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	return fmt.Sprintf("its process on %s %s; %s", host, how, lastCall(j.segment, rank))
}

// lastCall says where a rank was.
func lastCall(s *control.Segment, rank int) (text string) {
	for _, w := range s.Waiting(rank).Waits {
		if w.Attended {
			return fmt.Sprintf("it waited in %s at %s", w.Text, w.Site)
		}
	}
	last, ok := s.LastCall(rank)
	if !ok {
		return "it had made no call"
	}
	text = "its last call was " + s.Describe(last)
	if last.Seq > 0 && s.IsWorld(last.Comm) {
		text += fmt.Sprintf(", call %d of world", last.Seq)
	}
	if step, ok := s.Step(rank); ok {
		text += fmt.Sprintf(", in step %d", step)
	}
	return text
}

// howEnded says how a process has ended, or is ending, which can be seen until its parent has asked. The exit status is 0 if
// a signal killed it, or it is not known.
func howEnded(pid int) (text string, status int) {
	const unknown = "has ended without saying why"
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return unknown, 0
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const state, code = 0, 49 // fields 3 and 52 of proc_pid_stat(5)
	if len(fields) <= code {
		return unknown, 0
	}
	n, err := strconv.Atoi(string(fields[code]))
	if err != nil || n == 0 && fields[state][0] != 'Z' {
		return unknown, 0
	}
	if s := unix.WaitStatus(n); s.Signaled() {
		return fmt.Sprintf("was killed by %s (%v)", unix.SignalName(s.Signal()), s.Signal()), 0
	} else {
		return fmt.Sprintf("has ended with exit status %d without saying why", s.ExitStatus()), s.ExitStatus()
	}
}
