// Package keepalive tells a process that another host was cut off. Both hold a TCP
// connection on which they send nothing. The operating systems probe it, so that a process
// that is stopped, or computes for long, does not count as lost.
//
//	l, err := keepalive.Listen(limit, secret, lost)                               // on node1
//	err := keepalive.Dial(addresses, l.Port(), limit, secret, "node2", "node1", lost) // on node2
//
// lost is called with the name of the other host when that has not answered for four
// fifths of the limit. A process that ends closes its connections: that is no loss.
package keepalive

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"syscall"
	"time"
)

// MinLimit is the shortest limit: kernels count in seconds.
const MinLimit = 5 * time.Second

// patience is how long Dial tries, and how long a Listener accepts connections.
const patience = 30 * time.Second

// A Secret proves to both ends of a connection that the other belongs to the job. The end
// that dials sends the first half; the other answers with the second.
type Secret [32]byte

// NewSecret returns a random one.
func NewSecret() (s Secret) {
	_, _ = rand.Read(s[:]) // it never fails
	return s
}

// maxName is the longest name of a host.
const maxName = 255

// probes returns the keep-alive settings of a connection: the kernel gives it up four fifths
// of the limit after the last packet, after three probes without an answer. The settings are
// in whole seconds.
func probes(limit time.Duration) net.KeepAliveConfig {
	interval := (limit / 5).Truncate(time.Second)
	return net.KeepAliveConfig{Enable: true, Idle: (limit * 4 / 5).Truncate(time.Second) - 3*interval, Interval: interval, Count: 3}
}

// A Listener accepts connections from other hosts.
type Listener struct {
	tcp    net.Listener
	secret Secret
	lost   func(host string)
}

// Listen accepts connections from other hosts, on all addresses of this one.
func Listen(limit time.Duration, secret Secret, lost func(host string)) (*Listener, error) {
	config := net.ListenConfig{KeepAliveConfig: probes(limit)}
	tcp, err := config.Listen(context.Background(), "tcp", ":0")
	if err != nil {
		return nil, fmt.Errorf("keepalive: %w", err)
	}
	l := &Listener{tcp: tcp, secret: secret, lost: lost}
	time.AfterFunc(patience, func() { tcp.Close() })
	go Accept(tcp, l.serve)
	return l, nil
}

// Port returns the port that it listens on.
func (l *Listener) Port() int { return l.tcp.Addr().(*net.TCPAddr).Port }

// Accept serves each that connects, on a goroutine of its own, until the listener is closed.
func Accept(l net.Listener, serve func(c net.Conn)) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // of too many open files, for instance
			continue
		}
		go serve(c)
	}
}

// serve checks and holds an accepted connection.
func (l *Listener) serve(c net.Conn) {
	host, err := l.hello(c)
	if err != nil { // a stranger
		c.Close()
		return
	}
	hold(c, host, l.lost)
}

// hello reads the other's secret and name, and answers.
func (l *Listener) hello(c net.Conn) (host string, err error) {
	_ = c.SetDeadline(time.Now().Add(patience)) // an error shows in the next call
	half := len(l.secret) / 2
	head := make([]byte, half+1)
	if _, err := io.ReadFull(c, head); err != nil {
		return "", err
	}
	if subtle.ConstantTimeCompare(head[:half], l.secret[:half]) != 1 {
		return "", errors.New("another secret")
	}
	name := make([]byte, head[half])
	if _, err := io.ReadFull(c, name); err != nil {
		return "", err
	}
	_, err = c.Write(l.secret[half:])
	return string(name), err
}

// Dial connects this process, on the host called name, to a Listener on another host, at
// the first of its addresses that answers, and holds the connection.
func Dial(addresses []string, port int, limit time.Duration, secret Secret, name, host string, lost func(host string)) error {
	name = name[:min(len(name), maxName)]
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := Greet(ctx, addresses, port, probes(limit), secret, append([]byte{byte(len(name))}, name...))
	if err != nil {
		return fmt.Errorf("keepalive: no connection to %s: %w", host, err)
	}
	go hold(c, host, lost)
	return nil
}

// Greet connects to the first of a host's addresses at which a program answers that knows the secret. It
// proves that it knows it too, and then says greeting. ctx must have a deadline.
func Greet(ctx context.Context, addresses []string, port int, probes net.KeepAliveConfig, secret Secret,
	greeting []byte) (net.Conn, error) {
	type answer struct {
		c   net.Conn
		err error
	}
	answers := make(chan answer, len(addresses))
	for _, address := range addresses {
		go func() {
			c, err := greet(ctx, net.JoinHostPort(address, strconv.Itoa(port)), probes, secret, greeting)
			answers <- answer{c, err}
		}()
	}
	var errs []error
	for n := range addresses {
		a := <-answers
		if a.err != nil {
			errs = append(errs, a.err)
			continue
		}
		go func() {
			for range addresses[n+1:] {
				if more := <-answers; more.err == nil {
					more.c.Close()
				}
			}
		}()
		return a.c, nil
	}
	if len(errs) == 0 {
		return nil, errors.New("it has no address that others could reach")
	}
	return nil, errors.Join(errs...)
}

// greet is Greet for one address.
func greet(ctx context.Context, address string, probes net.KeepAliveConfig, secret Secret, greeting []byte) (net.Conn, error) {
	dialer := net.Dialer{KeepAliveConfig: probes}
	c, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	half := len(secret) / 2
	until, _ := ctx.Deadline()
	_ = c.SetDeadline(until) // an error shows in the next call
	if _, err = c.Write(append(secret[:half:half], greeting...)); err == nil {
		answer := make([]byte, half)
		if _, err = io.ReadFull(c, answer); err == nil && subtle.ConstantTimeCompare(answer, secret[half:]) != 1 {
			err = fmt.Errorf("%s: another program answers", address)
		}
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	_ = c.SetDeadline(time.Time{})
	return c, nil
}

// hold waits until a connection ends, and calls lost if the other host stopped answering.
func hold(c net.Conn, host string, lost func(string)) {
	defer c.Close()
	_ = c.SetDeadline(time.Time{})
	if _, err := io.Copy(io.Discard, c); cutOff(err) {
		lost(host)
	}
}

// cutOff reports whether a connection ended with err because packets do not arrive. If the
// process ends or its host restarts, the kernel there says so with other errors.
func cutOff(err error) bool {
	for _, e := range []syscall.Errno{syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.ENETDOWN} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Addresses are those of this host that others may reach.
func Addresses() (all []string) {
	list, _ := net.InterfaceAddrs() // none: nobody can
	for _, a := range list {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() {
			all = append(all, ip.IP.String())
		}
	}
	return all
}
