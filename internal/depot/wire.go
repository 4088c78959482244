//go:build linux

package depot

import (
	"context"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"

	"github.com/gorun-spmd/gorun/internal/keepalive"
	"github.com/gorun-spmd/gorun/internal/snapshot"
)

// What a connection is for. The end that dials sends the first half of the secret, this, and the
// number of its attempt; the other answers with the second half.
const (
	forMemory = 'm'
	forTether = 't' // the JSON of an Info follows
	forDepots = 'd' // the answer is the JSON of the Infos of all depots

	headBytes = len(keepalive.Secret{})/2 + 1 + 4
)

// patience is how long a host may be without an answer before it counts as lost.
const patience = 9 * time.Second

// probes has the kernel give up a connection after patience.
func probes() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: 3 * time.Second, Interval: 2 * time.Second, Count: 3}
}

// dial connects to the first of the addresses that answers and knows the secret.
func dial(addresses []string, port int, secret keepalive.Secret, purpose byte, attempt int) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return keepalive.Greet(ctx, addresses, port, probes(), secret, binary.LittleEndian.AppendUint32([]byte{purpose}, uint32(attempt)))
}

// welcome is the other end of dial.
func welcome(c net.Conn, secret keepalive.Secret) (purpose byte, attempt int, err error) {
	half := len(secret) / 2
	_ = c.SetDeadline(time.Now().Add(patience)) // an error shows in the next call
	head := make([]byte, headBytes)
	if _, err := io.ReadFull(c, head); err != nil {
		return 0, 0, err
	}
	if subtle.ConstantTimeCompare(head[:half], secret[:half]) != 1 {
		return 0, 0, errors.New("another secret")
	}
	_, err = c.Write(secret[half:])
	_ = c.SetDeadline(time.Time{})
	return head[half], int(binary.LittleEndian.Uint32(head[half+1:])), err
}

// A request to a memory: what to do, where, and how many bytes, which follow a write. The answer
// is the length of an error and the error, and after a read without one the bytes.
const (
	toRead  = 'r'
	toWrite = 'w'

	requestBytes = 1 + 8 + 4
	maxTransfer  = 1 << 20
)

// serveMemory answers requests until the connection ends.
func serveMemory(c io.ReadWriter, m snapshot.Memory) {
	head, buf := make([]byte, requestBytes), make([]byte, maxTransfer)
	for {
		if _, err := io.ReadFull(c, head); err != nil {
			return
		}
		at, n := int64(binary.LittleEndian.Uint64(head[1:])), binary.LittleEndian.Uint32(head[9:])
		if n > maxTransfer {
			return
		}
		b := buf[:n]
		var err error
		answer := []byte{0, 0}
		switch {
		case head[0] == toWrite:
			if _, err := io.ReadFull(c, b); err != nil {
				return
			}
			if err = snapshot.Within(at, int(n)); err == nil {
				_, err = m.WriteAt(b, at)
			}
		case head[0] == toRead:
			if err = snapshot.Within(at, int(n)); err == nil {
				_, err = m.ReadAt(b, at)
			}
		default:
			return
		}
		if err != nil {
			text := err.Error()
			text = text[:min(len(text), 1000)]
			answer = append(binary.LittleEndian.AppendUint16(nil, uint16(len(text))), text...)
		}
		if head[0] == toRead && err == nil {
			answer = append(answer, b...)
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}
