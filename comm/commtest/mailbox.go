package commtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/message"
)

// Mailboxes returns the cases of package comm/message, for backends that carry messages with tags.
func Mailboxes() []Case {
	return []Case{
		{"message: around the ring", ringByTag},
		{"message: to this rank itself", toItself},
		{"message: synchronous", synchronous},
		{"message: matching", matching},
		{"message: structs and named types", typedMessages},
		{"message: unknown length", unknownLength},
		{"message: objects", objectMessages},
		{"message: requests", requests},
		{"message: cancel", cancels},
		{"message: a late receiver", lateReceiver},
		{"message: beside collectives", besideCollectives},
		{"message: in random schedules", func(ctx context.Context, c *comm.Comm) error { return RandomMessages(ctx, c, 8) }},
		{"message: misuse", mailboxMisuse},
		{"message: disagreement", mailboxDisagrees},
		{"message: waited for in vain", messageInVain},
		{"message: counted", messagesCounted},
		{"message: closed", mailboxClosed},
	}
}

// mailbox runs f with a mailbox among the ranks of c.
func mailbox(ctx context.Context, c *comm.Comm, f func(m *message.Mailbox) error) error {
	m, err := message.New(ctx, c)
	if err != nil {
		return err
	}
	if err := f(m); err != nil {
		return err
	}
	return m.Close(ctx)
}

// ringByTag: each rank sends to the one a number of places after it, in four ways, from any memory.
func ringByTag(ctx context.Context, c *comm.Comm) error {
	return mailbox(ctx, c, func(m *message.Mailbox) error {
		n, me := c.Size(), c.Rank()
		for w := range places {
			for step, count := range []int{0, 1, 8, 9, 1000, 1024, 1025, 20_000, 300_000} {
				a := arena{c: c, where: w}
				src, dst, err := takeTwo[int32](&a, count)
				if err != nil {
					return err
				}
				for shift := range min(n, 3) {
					to, from := (me+shift)%n, (me+n-shift)%n
					letter(src, me, step)
					st, err := ways[(step+shift)%len(ways)](ctx, m, dst, from, src, to, step)
					if err != nil {
						return err
					}
					if want := (message.Status{Source: from, Tag: step, Count: count}); st != want {
						return fmt.Errorf("got %+v, want %+v", st, want)
					}
					if err := isLetter(dst, from, step); err != nil {
						return fmt.Errorf("%v: %w", w, err)
					}
				}
				a.free()
			}
		}
		return nil
	})
}

// ways are how a rank may send and receive at once.
var ways = []func(ctx context.Context, m *message.Mailbox, dst []int32, from int, src []int32, to, tag int) (message.Status, error){
	func(ctx context.Context, m *message.Mailbox, dst []int32, from int, src []int32, to, tag int) (message.Status, error) {
		return message.SendRecv(ctx, m, dst, from, tag, src, to, tag)
	},
	func(ctx context.Context, m *message.Mailbox, dst []int32, from int, src []int32, to, tag int) (message.Status, error) {
		s := message.ISend(m, src, to, tag)
		st, err := message.Recv(ctx, m, dst, from, tag)
		return st, errors.Join(err, message.WaitAll(ctx, s))
	},
	func(ctx context.Context, m *message.Mailbox, dst []int32, from int, src []int32, to, tag int) (message.Status, error) {
		r := message.IRecv(m, dst, from, tag)
		if err := message.Send(ctx, m, src, to, tag); err != nil {
			return message.Status{}, err
		}
		<-r.Done() // nobody waits in a call
		return r.Wait(ctx)
	},
	func(ctx context.Context, m *message.Mailbox, dst []int32, from int, src []int32, to, tag int) (message.Status, error) {
		s := message.ISend(m, src, to, tag)
		r := message.IRecv(m, dst, from, tag)
		for !s.Test() || !r.Test() {
			time.Sleep(10 * time.Microsecond)
		}
		return r.Wait(ctx)
	},
}

func toItself(ctx context.Context, c *comm.Comm) error {
	return mailbox(ctx, c, func(m *message.Mailbox) error {
		me := c.Rank()
		for step, count := range []int{0, 1, 5000, 100_000} {
			src, dst := make([]int32, count), make([]int32, count)
			letter(src, me, step)
			r := message.IRecv(m, dst, message.AnySource, step)
			if err := message.Send(ctx, m, src, me, step); err != nil {
				return err
			}
			if st, err := r.Wait(ctx); err != nil || st.Source != me || st.Count != count {
				return fmt.Errorf("got %+v, %w", st, err)
			}
			if err := isLetter(dst, me, step); err != nil {
				return err
			}
		}
		s := message.ISend(m, make([]byte, 1<<20), me, 9) // before its receive
		_, err := message.Recv(ctx, m, make([]byte, 1<<20), me, 9)
		return errors.Join(err, message.WaitAll(ctx, s))
	})
}

// synchronous: a send that ends when it was received has not ended before.
func synchronous(ctx context.Context, c *comm.Comm) error {
	return mailbox(ctx, c, func(m *message.Mailbox) error {
		n, me := c.Size(), c.Rank()
		to, from := (me+1)%n, (me+n-1)%n
		for step, count := range []int{0, 1, 100, 1025, 100_000} {
			src, dst := make([]int32, count), make([]int32, count)
			letter(src, me, step)
			s := message.ISSend(m, src, to, step)
			if _, err := message.Probe(ctx, m, from, step); err != nil { // it has come
				return err
			}
			if err := comm.Barrier(ctx, c); err != nil { // everywhere
				return err
			}
			if s.Test() {
				return fmt.Errorf("a synchronous send of %d elements ended before its receive began", count)
			}
			if err := comm.Barrier(ctx, c); err != nil {
				return err
			}
			st, err := message.Recv(ctx, m, dst, from, step)
			if err := errors.Join(err, message.WaitAll(ctx, s)); err != nil {
				return err
			}
			if want := (message.Status{Source: from, Tag: step, Count: count}); st != want {
				return fmt.Errorf("got %+v, want %+v", st, want)
			}
			if err := isLetter(dst, from, step); err != nil {
				return err
			}
		}
		r := message.IRecv(m, make([]int32, 1), from, 9)
		if err := message.SSend(ctx, m, []int32{1}, to, 9); err != nil {
			return err
		}
		_, err := r.Wait(ctx)
		return err
	})
}

// matching: a receive takes the first message that it can, whichever came before. Rank 0 gets from all.
func matching(ctx context.Context, c *comm.Comm) error {
	return mailbox(ctx, c, func(m *message.Mailbox) error {
		n, me := c.Size(), c.Rank()
		const each = 12
		var sent []*message.Request
		for i := range each {
			sent = append(sent, message.ISend(m, []int{100*me + i}, 0, i%3))
		}
		if me == 0 {
			x := make([]int, 2) // longer than the messages
			get := func(from, tag, want int) error {
				st, err := message.Recv(ctx, m, x, from, tag)
				if err != nil {
					return err
				}
				if st.Count != 1 || from >= 0 && st.Source != from || st.Tag != want%3 || x[0] != 100*st.Source+want {
					return fmt.Errorf("a receive from %d, tag %d: got %d, %+v; want message %d", from, tag, x[0], st, want)
				}
				return nil
			}
			for from := range n { // the last tag first, then what is left in its order
				for _, i := range []int{2, 5, 8, 11} {
					if err := get(from, 2, i); err != nil {
						return err
					}
				}
				for _, i := range []int{0, 1, 3, 4} {
					if err := get(from, message.AnyTag, i); err != nil {
						return err
					}
				}
			}
			next := make([]int, n)
			for range 2 * n { // messages 6 and 9 of each
				st, err := message.Recv(ctx, m, x, message.AnySource, 0)
				if err != nil || x[0] != 100*st.Source+6+3*next[st.Source] {
					return fmt.Errorf("got %d, %+v, %w", x[0], st, err)
				}
				next[st.Source]++
			}
			for range 2 * n { // 7 and 10
				st, err := message.Recv(ctx, m, x, message.AnySource, message.AnyTag)
				if err != nil || x[0] != 100*st.Source+1+3*next[st.Source] {
					return fmt.Errorf("got %d, %+v, %w", x[0], st, err)
				}
				next[st.Source]++
			}
		}
		return message.WaitAll(ctx, sent...)
	})
}

// A celsius is a named type, a reading a struct.
type (
	celsius float64
	reading struct {
		At    int32
		Value [2]celsius
	}
)

func typedMessages(ctx context.Context, c *comm.Comm) error {
	return mailbox(ctx, c, func(m *message.Mailbox) error {
		n, me := c.Size(), c.Rank()
		src, dst := make([]reading, 300), make([]reading, 400)
		src[299] = reading{int32(me), [2]celsius{1, celsius(me)}}
		st, err := message.SendRecv(ctx, m, dst, (me+n-1)%n, 1, src, (me+1)%n, 1)
		if before := (me + n - 1) % n; err != nil || st.Count != 300 || dst[299] != (reading{int32(before), [2]celsius{1, celsius(before)}}) {
			return fmt.Errorf("got %+v with %+v, %w", dst[299], st, err)
		}
		temperature := make([]celsius, 1)
		_, err = message.SendRecv(ctx, m, temperature, (me+n-1)%n, 1, []float64{20}, (me+1)%n, 1)
		if err != nil || temperature[0] != 20 {
			return fmt.Errorf("got %v, %w", temperature, err)
		}
		return nil
	})
}

// unknownLength: ranks learn from a message how long it is.
func unknownLength(ctx context.Context, c *comm.Comm) error {
	return mailbox(ctx, c, func(m *message.Mailbox) error {
		n, me := c.Size(), c.Rank()
		for step, count := range []int{0, 1, 700, 20_000} {
			count += me
			src := make([]int32, count)
			letter(src, me, step)
			s := message.ISend(m, src, (me+1)%n, step)
			before := (me + n - 1) % n
			want := message.Status{Source: before, Tag: step, Count: count - me + before}
			st, err := message.Probe(ctx, m, message.AnySource, message.AnyTag)
			if err != nil || st != want {
				return fmt.Errorf("a probe: got %+v, %w; want %+v", st, err, want)
			}
			if st, ok, err := message.TryProbe(m, before, step); err != nil || !ok || st != want {
				return fmt.Errorf("a TryProbe: got %+v, %v, %w; want %+v", st, ok, err, want)
			}
			if _, ok, err := message.TryProbe(m, before, step+1); err != nil || ok {
				return fmt.Errorf("a TryProbe of another tag: %v, %w", ok, err)
			}
			got, st, err := message.RecvSlice[int32](ctx, m, message.AnySource, step)
			if err != nil || st != want || len(got) != want.Count {
				return fmt.Errorf("a RecvSlice: got %d elements, %+v, %w; want %+v", len(got), st, err, want)
			}
			if err := errors.Join(isLetter(got, before, step), message.WaitAll(ctx, s), comm.Barrier(ctx, c)); err != nil {
				return err
			}
		}
		return nil
	})
}

func objectMessages(ctx context.Context, c *comm.Comm) error {
	return mailbox(ctx, c, func(m *message.Mailbox) error {
		n, me := c.Size(), c.Rank()
		type parcel struct {
			Name   string
			Counts map[string]int
		}
		small := parcel{fmt.Sprint("of ", me), map[string]int{"a": me}}
		if err := message.SendObject(ctx, m, small, (me+1)%n, 4); err != nil {
			return err
		}
		before := (me + n - 1) % n
		got, st, err := message.RecvObject[parcel](ctx, m, message.AnySource, 4)
		same := got.Name == fmt.Sprint("of ", before) && got.Counts["a"] == before
		if err != nil || st != (message.Status{Source: before, Tag: 4, Count: 1}) || !same {
			return fmt.Errorf("got %+v, %+v, %w", got, st, err)
		}
		return want(message.SendObject(ctx, m, func() {}, 0, 4), nil, "message SendObject", "a value that encoding/gob takes")
	})
}

// requests: all of a rank's receives are open at once.
func requests(ctx context.Context, c *comm.Comm) error {
	return mailbox(ctx, c, func(m *message.Mailbox) error {
		n, me := c.Size(), c.Rank()
		if i, _, err := message.WaitAny(ctx); i != -1 || err != nil {
			return fmt.Errorf("a WaitAny of nothing: %d, %w", i, err)
		}
		into := make([][]int32, n)
		var got, sent []*message.Request
		for from := range n {
			into[from] = make([]int32, 3000)
			got = append(got, message.IRecv(m, into[from], from, 0))
		}
		if me == 0 && n > 1 && got[1].Test() {
			return errors.New("a receive ended before its message was sent")
		}
		if err := comm.Barrier(ctx, c); err != nil {
			return err
		}
		for to := range n {
			x := make([]int32, 1000+1000*(to%3))
			letter(x, me, to)
			sent = append(sent, message.ISend(m, x, to, 0))
		}
		left := slices.Clone(got)
		for range got {
			i, st, err := message.WaitAny(ctx, left...)
			if err != nil || st.Count != 1000+1000*(me%3) || left[i] != got[st.Source] {
				return fmt.Errorf("a WaitAny: %d of %d, %+v, %w", i, len(left), st, err)
			}
			if err := isLetter(into[st.Source][:st.Count], st.Source, me); err != nil {
				return err
			}
			if left[i] = nil; st.Source%2 == 0 { // else it is passed over
				left = slices.Delete(left, i, i+1)
			}
		}
		if i, _, err := message.WaitAny(ctx, left...); i != -1 || err != nil {
			return fmt.Errorf("a WaitAny of %d nil requests: %d, %w", len(left), i, err)
		}
		if err := message.WaitAll(ctx, append(left, sent...)...); err != nil {
			return err
		}
		for from, r := range got { // once more
			if st, err := r.Wait(ctx); err != nil || st.Source != from || !r.Test() {
				return fmt.Errorf("a second Wait: %+v, %w", st, err)
			}
		}
		return nil
	})
}

// cancels: a receive that was taken back takes no message.
func cancels(ctx context.Context, c *comm.Comm) error {
	return mailbox(ctx, c, func(m *message.Mailbox) error {
		n, me := c.Size(), c.Rank()
		first, second := []int{-1}, []int{-1}
		r := message.IRecv(m, first, message.AnySource, 5)
		r2 := message.IRecv(m, second, message.AnySource, 5)
		if once, twice := r.Cancel(), r.Cancel(); !once || !twice || !r.Test() {
			return errors.New("a receive without a message was not cancelled")
		}
		<-r.Done()
		if _, err := r.Wait(ctx); !errors.Is(err, message.ErrCancelled) {
			return fmt.Errorf("a cancelled receive: got %v", err)
		}
		if err := comm.Barrier(ctx, c); err != nil {
			return err
		}
		s := message.ISend(m, []int{me}, (me+1)%n, 5)
		if st, err := r2.Wait(ctx); err != nil || second[0] != st.Source || first[0] != -1 || r2.Cancel() {
			return fmt.Errorf("got %v and %v, %+v, %w", first, second, st, err)
		}
		_, err := s.Wait(ctx)
		if err == nil && s.Cancel() {
			err = errors.New("a send was cancelled")
		}
		return err
	})
}

// lateReceiver: rank 0 gets no message before all were sent: more than there is room for.
func lateReceiver(ctx context.Context, c *comm.Comm) error {
	return mailbox(ctx, c, func(m *message.Mailbox) error {
		n, me := c.Size(), c.Rank()
		const messages = 1500
		var sent []*message.Request
		if me > 0 {
			for i := range messages {
				x := make([]int32, []int{1, 100, 1000}[i%3])
				letter(x, me, i%60)
				sent = append(sent, message.ISend(m, x, 0, i%60))
			}
		}
		if err := comm.Barrier(ctx, c); err != nil {
			return err
		}
		if me == 0 {
			x := make([]int32, 1000)
			next := make([]int, n)
			for range messages * (n - 1) {
				st, err := message.Recv(ctx, m, x, message.AnySource, message.AnyTag)
				if err != nil {
					return err
				}
				if i := next[st.Source]; st.Tag != i%60 || st.Count != []int{1, 100, 1000}[i%3] {
					return fmt.Errorf("message %d of rank %d is %+v", i, st.Source, st)
				}
				next[st.Source]++
				if err := isLetter(x[:st.Count], st.Source, st.Tag); err != nil {
					return err
				}
			}
		}
		return message.WaitAll(ctx, sent...)
	})
}

// besideCollectives: requests go on while their ranks are in a collective, which others come to only
// when they have got their messages.
func besideCollectives(ctx context.Context, c *comm.Comm) error {
	return mailbox(ctx, c, func(m *message.Mailbox) error {
		n, me := c.Size(), c.Rank()
		x, y := make([]int32, 200_000), make([]int32, 200_000)
		letter(x, me, 1)
		if me%2 == 0 {
			s, r := message.ISend(m, x, (me+1)%n, 1), message.IRecv(m, y, (me+n-1)%n, 1)
			if err := comm.Barrier(ctx, c); err != nil {
				return err
			}
			if err := message.WaitAll(ctx, s, r); err != nil {
				return err
			}
		} else {
			s := message.ISend(m, x, (me+1)%n, 1)
			if _, err := message.Recv(ctx, m, y, (me+n-1)%n, 1); err != nil {
				return err
			}
			if err := errors.Join(message.WaitAll(ctx, s), comm.Barrier(ctx, c)); err != nil {
				return err
			}
		}
		return isLetter(y, (me+n-1)%n, 1)
	})
}
