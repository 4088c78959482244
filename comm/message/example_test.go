package message_test

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/mem"
	"github.com/gorun-spmd/gorun/comm/message"
)

// inThree runs f on three ranks.
func inThree(f func(ctx context.Context, m *message.Mailbox) error) {
	world := comm.NewWorld(mem.Open(1)[0])
	if err := mem.Run(context.Background(), world, 3, func(ctx context.Context, world *comm.Comm) error {
		m, err := message.New(ctx, world)
		if err != nil {
			return err
		}
		if err := f(ctx, m); err != nil {
			return err
		}
		return m.Close(ctx)
	}); err != nil {
		fmt.Println(err)
	}
}

// Rank 0 takes messages as they come.
func Example() {
	inThree(func(ctx context.Context, m *message.Mailbox) error {
		const result = 1 // a tag
		if me := m.Comm().Rank(); me > 0 {
			return message.Send(ctx, m, []int{10 * me}, 0, result)
		}
		sum, x := 0, make([]int, 1)
		for range m.Comm().Size() - 1 {
			st, err := message.Recv(ctx, m, x, message.AnySource, result)
			if err != nil {
				return err
			}
			sum += x[0] * st.Source
		}
		fmt.Println(sum)
		return nil
	})
	// Output: 50
}

// All ranks send to the next one, and receive from the one before, while they could compute.
func ExampleISend() {
	inThree(func(ctx context.Context, m *message.Mailbox) error {
		n, me := m.Comm().Size(), m.Comm().Rank()
		x, y := make([]float64, 1_000_000), make([]float64, 1_000_000)
		x[7] = float64(me)
		out := message.ISend(m, x, (me+1)%n, 0)
		in := message.IRecv(m, y, (me+n-1)%n, 0)
		if err := message.WaitAll(ctx, out, in); err != nil {
			return err
		}
		if me == 0 {
			fmt.Println(y[7])
		}
		return nil
	})
	// Output: 2
}

// Ranks send to whom they like and nobody knows how many come: a rank whose own were all received begins a barrier, and
// takes what comes until all ranks have. It is the algorithm NBX of Hoefler, Siebert and Lumsdaine, "Scalable Communication
// Protocols for Dynamic Sparse Data Exchange", PPoPP 2010.
func ExampleISSend() {
	inThree(func(ctx context.Context, m *message.Mailbox) error {
		world, me, sum := m.Comm(), m.Comm().Rank(), 0
		var out []*message.Request
		for to := range me { // rank 0 gets two, rank 1 one
			out = append(out, message.ISSend(m, []int{100 * me}, to, 0))
		}
		var barrier *comm.Pending
		var all <-chan struct{} // closed when all ranks have begun the barrier
		for x := make([]int, 1); ; {
			select {
			case <-all:
				if me == 0 {
					fmt.Println(sum)
				}
				return barrier.Wait()
			default:
			}
			if _, ok, err := message.TryProbe(m, message.AnySource, 0); err != nil {
				return err
			} else if ok {
				if _, err := message.Recv(ctx, m, x, message.AnySource, 0); err != nil {
					return err
				}
				sum += x[0]
			}
			for len(out) > 0 && out[0].Test() {
				out = out[1:]
			}
			if len(out) == 0 && barrier == nil {
				barrier = world.Start(ctx, comm.Call{Kind: comm.BarrierKind})
				all = barrier.Done()
			}
		}
	})
	// Output: 300
}

// The receiver learns from the message how long it is.
func ExampleRecvSlice() {
	inThree(func(ctx context.Context, m *message.Mailbox) error {
		switch m.Comm().Rank() {
		case 0:
			return message.Send(ctx, m, []byte("spmd"), 1, 0)
		case 1:
			word, st, err := message.RecvSlice[byte](ctx, m, 0, message.AnyTag)
			fmt.Println(string(word), st.Count)
			return err
		}
		return nil
	})
	// Output: spmd 4
}

// Any Go value travels, as encoding/gob writes it.
func ExampleSendObject() {
	type job struct {
		Name  string
		Files []string
	}
	inThree(func(ctx context.Context, m *message.Mailbox) error {
		switch m.Comm().Rank() {
		case 0:
			return message.SendObject(ctx, m, job{"sort", []string{"a", "b"}}, 2, 0)
		case 2:
			j, _, err := message.RecvObject[job](ctx, m, 0, 0)
			fmt.Println(j.Name, j.Files)
			return err
		}
		return nil
	})
	// Output: sort [a b]
}
