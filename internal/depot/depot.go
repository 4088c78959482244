//go:build linux

package depot

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/internal/keepalive"
	"github.com/gorun-spmd/gorun/internal/snapshot"
)

// A depot holds the memory of one host.
type depot struct {
	file   *os.File
	local  *net.UnixListener
	remote net.Listener
	secret keepalive.Secret
	info   Info
	hub    *Hub // nil: this depot is not gorun's

	mu    sync.Mutex
	ranks map[*net.UnixConn]*os.Process // that are connected
	users map[net.Conn]int              // the attempts of those that read and write from other hosts
	least int                           // the attempt before which all are over
}

// errTaken says that this host has a depot of the job.
var errTaken = errors.New("depot: this host has one")

// socket is the abstract name of a job's depot: no file is left.
func socket(id string) *net.UnixAddr { return &net.UnixAddr{Name: "@gorun-depot-" + id, Net: "unix"} }

// open makes the memory of this host for the job with this ID, and serves it. hub is nil if this
// depot is not gorun's.
func open(id string, secret keepalive.Secret, hub *Hub) (*depot, error) {
	local, err := net.ListenUnix("unix", socket(id))
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, errTaken
	}
	if err != nil {
		return nil, fmt.Errorf("depot: %w", err)
	}
	remote, err := net.Listen("tcp", ":0")
	if err != nil {
		local.Close()
		return nil, fmt.Errorf("depot: %w", err)
	}
	file, err := snapshot.Create()
	if err != nil {
		local.Close()
		remote.Close()
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	d := &depot{file: file, local: local, remote: remote, secret: secret, hub: hub,
		ranks: map[*net.UnixConn]*os.Process{}, users: map[net.Conn]int{},
		info: Info{ID: rand.Text(), Host: host, Addresses: keepalive.Addresses(), Port: remote.Addr().(*net.TCPAddr).Port}}
	go keepalive.Accept(local, func(c net.Conn) { d.serveRank(c.(*net.UnixConn)) })
	go keepalive.Accept(remote, d.serveHost)
	return d, nil
}

// close gives the memory back, when the ranks have too.
func (d *depot) close() {
	d.local.Close()
	d.remote.Close()
	d.file.Close()
}

// serveRank hands one process the memory, and knows it until it ends.
func (d *depot) serveRank(c *net.UnixConn) {
	defer c.Close()
	p, err := peer(c)
	if err != nil {
		return
	}
	d.mu.Lock()
	d.ranks[c] = p
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.ranks, c)
		d.mu.Unlock()
		_ = p.Release() // there is nothing more to do
	}()
	if d.hand(c) != nil {
		return
	}
	_, _ = c.Read(make([]byte, 1)) // it sends nothing, and so returns at its end
}

// hand gives c the descriptor of the memory, and what others have to know of the depot.
func (d *depot) hand(c *net.UnixConn) error {
	text, err := json.Marshal(d.info)
	if err != nil {
		return err
	}
	raw, err := d.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { // it stays open until then
		_, _, failed = c.WriteMsgUnix(text, unix.UnixRights(int(fd)), nil)
	})
	return errors.Join(err, failed)
}

// peer returns the process at the other end, which has to be the same user's. The process waits
// for an answer, so no other has got its process id.
func peer(c *net.UnixConn) (*os.Process, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var credentials *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		credentials, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil || failed != nil {
		return nil, errors.Join(err, failed)
	}
	if int(credentials.Uid) != os.Getuid() || credentials.Pid <= 0 {
		return nil, errors.New("another user")
	}
	return os.FindProcess(int(credentials.Pid))
}

// end ends all attempts before next on this host: it kills their ranks, and returns when they
// are gone and nothing of them on other hosts can write here.
func (d *depot) end(next int) error {
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		d.mu.Lock()
		d.least = max(d.least, next)
		left := len(d.ranks)
		for _, p := range d.ranks {
			_ = p.Kill() // it may have ended
		}
		for c, attempt := range d.users {
			if attempt < next {
				left++
				c.Close()
			}
		}
		d.mu.Unlock()
		switch {
		case left == 0:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("depot: %d processes of an attempt that is over do not end", left)
		}
	}
}

// serveHost answers one that has connected by TCP.
func (d *depot) serveHost(c net.Conn) {
	defer c.Close()
	purpose, attempt, err := welcome(c, d.secret)
	if err == nil {
		err = c.(*net.TCPConn).SetKeepAliveConfig(probes())
	}
	switch {
	case err != nil:
	case purpose == forTether && d.hub != nil:
		d.hub.hold(c)
	case purpose == forDepots && d.hub != nil:
		_ = json.NewEncoder(c).Encode(append(d.hub.others(), d.info)) // the other end sees that it is not whole
	case purpose == forMemory && d.use(c, attempt):
		serveMemory(c, d.file)
		d.mu.Lock()
		delete(d.users, c)
		d.mu.Unlock()
	}
}

// use notes that c reads and writes, unless its attempt is over.
func (d *depot) use(c net.Conn, attempt int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if attempt >= d.least {
		d.users[c] = attempt
	}
	return attempt >= d.least
}
