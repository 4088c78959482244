package blocking

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/internal/testenv"
)

// mail is a Binding whose ranks are goroutines. Send returns when its message
// has been received, as MPI's may.
type mail struct {
	rank   int
	post   *office
	closed bool
}

type office struct {
	size int
	mu   sync.Mutex
	box  map[[3]int]chan []byte // by sender, receiver, tag
}

func (o *office) of(from, to, tag int) chan []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := [3]int{from, to, tag}
	if o.box[key] == nil {
		o.box[key] = make(chan []byte)
	}
	return o.box[key]
}

func (m *mail) Rank() int { return m.rank }
func (m *mail) Size() int { return m.post.size }
func (m *mail) Abort()    { panic("abort") }

func (m *mail) Close() error {
	m.closed = true
	return nil
}

func (m *mail) Send(data []byte, to, tag int) error {
	m.post.of(m.rank, to, tag) <- append([]byte(nil), data...)
	return nil
}

func (m *mail) Recv(data []byte, from, tag int) error {
	got := <-m.post.of(from, m.rank, tag)
	if len(got) != len(data) || len(data) == 0 {
		return fmt.Errorf("%d bytes from %d, want %d", len(got), from, len(data))
	}
	copy(data, got)
	return nil
}

// The suite over goroutines, with messages of any size and of 1000 bytes.
func TestSuite(t *testing.T) {
	for _, n := range testenv.Fewer([]int{1, 2, 3, 4, 7}, 0, 1, 3) {
		for _, most := range []int{maxBytes, 1000} {
			t.Run(fmt.Sprintf("n=%d most=%d", n, most), func(t *testing.T) {
				post := &office{size: n, box: map[[3]int]chan []byte{}}
				var wg sync.WaitGroup
				errs := make([]error, n)
				for rank := range n {
					wg.Go(func() {
						m := &mail{rank: rank, post: post}
						r := New("test", m)
						r.job.most = most
						world := comm.NewWorld(r)
						if err := commtest.RefusesMailbox(t.Context(), world); err != nil {
							t.Error(err)
						}
						for _, c := range append(commtest.Collectives(), commtest.Groups()...) {
							if err := c.Run(context.Background(), world); err != nil {
								errs[rank] = fmt.Errorf("%s: %w", c.Name, err)
								panic(errs[rank]) // the others would wait for ever
							}
						}
						if err := r.Close(nil); err != nil || !m.closed {
							errs[rank] = errors.Join(err, errors.New("not closed"))
						}
					})
				}
				wg.Wait()
				for rank, err := range errs {
					if err != nil {
						t.Errorf("rank %d: %v", rank, err)
					}
				}
			})
		}
	}
}

func TestUnknownKindsAreRefused(t *testing.T) {
	if err := commtest.UnknownKind(t.Context(), New("test", &mail{post: &office{size: 2, box: map[[3]int]chan []byte{}}})); err != nil {
		t.Error(err)
	}
}
