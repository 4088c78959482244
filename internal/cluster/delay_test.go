//go:build linux

package cluster

import (
	"encoding/binary"
	"fmt"
	"net"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// slow takes the first two hosts off the switch and hands each frame on to the other after a delay, as a long cable does. The
// kernel's own means, netem, is in few kernels of virtual machines.
func (c *cluster) slow(delay time.Duration) {
	for _, port := range []string{"p1", "p2"} {
		c.must("nsenter", "-t", fmt.Sprint(c.wires), "--net", "ip", "link", "set", port, "nomaster")
	}
	for _, ends := range [][2]string{{"p1", "p2"}, {"p2", "p1"}} {
		opened := make(chan error)
		go func() {
			runtime.LockOSThread() // for good: the thread is in the switch's network, and ends with this function
			w, err := openWire(c.wires, ends)
			opened <- err
			if err == nil {
				w.carry(delay)
			}
		}()
		if err := <-opened; err != nil {
			c.t.Fatalf("a cable from %s to %s: %v", ends[0], ends[1], err)
		}
	}
}

// A wire is a socket for the frames that come out of a port and one for those that go into another.
type wire struct{ from, to int }

// openWire enters the network of a process, for the rest of the thread's life, and opens a wire there.
func openWire(pid int, ends [2]string) (w wire, err error) {
	ns, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return w, err
	}
	defer unix.Close(ns)
	if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
		return w, err
	}
	// Ranks that wait awake take all processors: the thread goes before them.
	first := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	if err := unix.SchedSetAttr(0, &first, 0); err != nil {
		return w, err
	}
	for i, fd := range []*int{&w.from, &w.to} {
		const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // in the network's order of bytes
		port, err := net.InterfaceByName(ends[i])
		if err != nil {
			return w, err
		}
		if *fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return w, err
		}
		// With VNET_HDR a segment that is cut only by the last device passes whole.
		if err := unix.SetsockoptInt(*fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
			return w, err
		}
		protocol := uint16(0)
		if fd == &w.from {
			protocol = all
			for _, o := range [][3]int{{unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1}, {unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1},
				{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64 << 20}} {
				if err := unix.SetsockoptInt(*fd, o[0], o[1], o[2]); err != nil {
					return w, err
				}
			}
		}
		if err := unix.Bind(*fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: port.Index}); err != nil {
			return w, err
		}
	}
	return w, nil
}

// oversleeps is how much longer than asked for a sleep takes on a virtual machine, in nanoseconds: so long carry stays awake.
const oversleeps = 40_000

// carry hands each frame on, so long after it came. It ends when the ports are gone.
func (w wire) carry(delay time.Duration) {
	defer unix.Close(w.from)
	defer unix.Close(w.to)
	frame, more := make([]byte, 128<<10), make([]byte, 128)
	for {
		n, m, _, _, err := unix.Recvmsg(w.from, frame, more, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return
		}
		for due := came(more[:m]) + delay.Nanoseconds(); ; {
			var now unix.Timespec
			if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil {
				return
			}
			left := due - now.Nano()
			if left <= 0 {
				break
			}
			if left > oversleeps {
				nap := unix.NsecToTimespec(left - oversleeps)
				_ = unix.Nanosleep(&nap, nil) // a signal may end it early
			}
		}
		if _, err := unix.Write(w.to, frame[:n]); err == unix.ENETDOWN || err == unix.ENXIO {
			return
		}
	}
}

// came returns when the kernel got a frame, from what it says of it: in nanoseconds since 1970.
func came(more []byte) int64 {
	said, err := unix.ParseSocketControlMessage(more)
	if err == nil {
		for _, m := range said {
			if m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})) {
				return int64(binary.NativeEndian.Uint64(m.Data))*1e9 + int64(binary.NativeEndian.Uint64(m.Data[8:]))
			}
		}
	}
	return time.Now().UnixNano()
}
