//go:build linux

package depot

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/gorun-spmd/gorun/internal/keepalive"
)

// A Remote is the memory of another host. It connects when it is first used. One goroutine at a
// time uses it, others wait.
type Remote struct {
	info    Info
	secret  keepalive.Secret
	attempt int

	mu     sync.Mutex
	conn   net.Conn // nil: not connected
	buf    []byte
	broken error
}

// NewRemote returns the memory of the host that info describes, for a rank of the contract's attempt.
func NewRemote(info Info, c *Contract) *Remote {
	return &Remote{info: info, secret: c.Secret, attempt: c.Attempt}
}

// Connect connects, if that has not been done.
func (r *Remote) Connect() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.connect()
}

func (r *Remote) connect() error {
	if r.conn != nil || r.broken != nil {
		return r.broken
	}
	c, err := dial(r.info.Addresses, r.info.Port, r.secret, forMemory, r.attempt)
	if err != nil {
		return fmt.Errorf("the memory for snapshots on %s cannot be reached: %w; a firewall between hosts may forbid it", r.info.Host, err)
	}
	r.conn = c
	return nil
}

// stall is how long one request may take.
const stall = time.Minute

// do carries out a request of at most maxTransfer bytes.
func (r *Remote) do(what byte, b []byte, at int64) error {
	if err := r.connect(); err != nil {
		return err
	}
	refused, err := r.request(what, b, at)
	if err != nil { // the two ends no longer agree on where a request begins
		r.broken = fmt.Errorf("the memory for snapshots on %s: %w", r.info.Host, err)
		r.conn.Close()
		return r.broken
	}
	if refused != "" {
		return fmt.Errorf("the memory for snapshots on %s: %s", r.info.Host, refused)
	}
	return nil
}

// request returns the error that the other end answers.
func (r *Remote) request(what byte, b []byte, at int64) (refused string, err error) {
	_ = r.conn.SetDeadline(time.Now().Add(stall)) // an error shows in the next call
	r.buf = append(r.buf[:0], what)
	r.buf = binary.LittleEndian.AppendUint64(r.buf, uint64(at))
	r.buf = binary.LittleEndian.AppendUint32(r.buf, uint32(len(b)))
	out := net.Buffers{r.buf}
	if what == toWrite {
		out = append(out, b)
	}
	if _, err := out.WriteTo(r.conn); err != nil {
		return "", err
	}
	var size [2]byte
	if _, err := io.ReadFull(r.conn, size[:]); err != nil {
		return "", err
	}
	if n := binary.LittleEndian.Uint16(size[:]); n > 0 {
		text := make([]byte, n)
		_, err := io.ReadFull(r.conn, text)
		return string(text), err
	}
	if what == toRead {
		_, err = io.ReadFull(r.conn, b)
	}
	return "", err
}

func (r *Remote) transfer(what byte, b []byte, at int64) (n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n < len(b) {
		part := b[n:min(len(b), n+maxTransfer)]
		if err := r.do(what, part, at+int64(n)); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// ReadAt reads from the memory.
func (r *Remote) ReadAt(b []byte, at int64) (n int, err error) { return r.transfer(toRead, b, at) }

// WriteAt writes to the memory.
func (r *Remote) WriteAt(b []byte, at int64) (n int, err error) { return r.transfer(toWrite, b, at) }
