//go:build linux

package depot

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorun-spmd/gorun/internal/keepalive"
)

// A Hub is gorun's hold on the depots of a job, of which one is its own.
type Hub struct {
	own    *depot
	id     string
	secret keepalive.Secret
	closed chan struct{}

	mu      sync.Mutex
	tethers map[net.Conn]Info // of the depot at the other end
}

// NewHub opens the depot of this host, and listens to those of others.
func NewHub() (*Hub, error) {
	h := &Hub{id: rand.Text(), secret: keepalive.NewSecret(), closed: make(chan struct{}), tethers: map[net.Conn]Info{}}
	own, err := open(h.id, h.secret, h)
	if err != nil {
		return nil, err
	}
	h.own = own
	return h, nil
}

// Contract returns what the ranks of an attempt are told.
func (h *Hub) Contract(attempt int) (Contract, error) {
	self, err := os.Executable()
	if err != nil {
		return Contract{}, fmt.Errorf("depot: %w", err)
	}
	return Contract{ID: h.id, Secret: h.secret, Gorun: self, Addresses: h.own.info.Addresses, Port: h.own.info.Port, Attempt: attempt}, nil
}

// Memory is that of this host.
func (h *Hub) Memory() *os.File { return h.own.file }

// hold keeps a tether.
func (h *Hub) hold(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(patience)) // an error shows in the next call
	var info Info
	if json.NewDecoder(c).Decode(&info) != nil {
		return
	}
	h.mu.Lock()
	h.tethers[c] = info
	_, _ = c.Write([]byte{taken}) // else the other end gives up
	h.mu.Unlock()
	<-h.closed
}

// others returns the depots of the other hosts.
func (h *Hub) others() []Info {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.SortedFunc(maps.Values(h.tethers), func(a, b Info) int { return strings.Compare(a.ID, b.ID) })
}

// End has the ranks of all attempts before next killed on every host, and returns the names of the
// hosts that answer, this one among them. It lets go of the others, whose depots end.
func (h *Hub) End(next int) (alive []string) {
	h.mu.Lock()
	tethers := maps.Clone(h.tethers)
	h.mu.Unlock()
	var all sync.WaitGroup
	answers := make(chan net.Conn, len(tethers))
	for c := range tethers {
		all.Go(func() {
			if end(c, next) == nil {
				answers <- c
			}
		})
	}
	if h.own.end(next) == nil {
		alive = append(alive, h.own.info.Host)
	}
	all.Wait()
	close(answers)
	answered := map[net.Conn]bool{}
	for c := range answers {
		answered[c] = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for c, info := range tethers {
		if answered[c] {
			alive = append(alive, info.Host)
			continue
		}
		c.Close()
		delete(h.tethers, c)
	}
	slices.Sort(alive)
	return alive
}

// end has the depot at the other end of a tether end all attempts before next. It says at once
// that it will, if its host is there.
func end(c net.Conn, next int) error {
	_ = c.SetDeadline(time.Now().Add(patience / 2)) // an error shows in the next call
	word := binary.LittleEndian.AppendUint32([]byte{toEnd}, uint32(next))
	if _, err := c.Write(word); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, word[:1]); err != nil {
		return err
	}
	_ = c.SetDeadline(time.Now().Add(2 * patience)) // it gives up after patience
	_, err := io.ReadFull(c, word[:1])
	return err
}

// Close ends the depots, and gives this host's memory back.
func (h *Hub) Close() {
	h.own.close()
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.tethers {
		c.Close()
	}
	clear(h.tethers)
	close(h.closed)
}
