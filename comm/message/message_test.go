package message_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/comm/message"
)

func TestBoth(t *testing.T) {
	for r, err := range commtest.Ranks(t.Context(), 2, func(ctx context.Context, world *comm.Comm) error {
		m, err := message.New(ctx, world)
		if err != nil {
			return err
		}
		me, other := world.Rank(), 1-world.Rank()
		for i := range 1000 {
			x := []int{i + me}
			if me == 0 {
				if err := message.Send(ctx, m, x, other, 3); err != nil {
					return err
				}
			}
			if st, err := message.Recv(ctx, m, x, other, 3); err != nil || st != (message.Status{other, 3, 1}) || x[0] != i {
				return fmt.Errorf("got %v %v %v", st, x, err)
			}
			if me == 1 {
				if err := message.Send(ctx, m, x, other, 3); err != nil {
					return err
				}
			}
		}
		big, in := make([]float64, 1<<20), make([]float64, 1<<20)
		big[77] = float64(me)
		s := message.ISend(m, big, other, 1)
		if st, err := message.IRecv(m, in, message.AnySource, message.AnyTag).Wait(ctx); err != nil || in[77] != float64(other) {
			return fmt.Errorf("%v %v", st, err)
		}
		if _, err := s.Wait(ctx); err != nil {
			return err
		}
		return m.Close(ctx)
	}) {
		if err != nil {
			t.Error(r, err)
		}
	}
}

// TestWaitAllSaysACauseOnce: requests that a rank's error ends have one cause; others have their own.
func TestWaitAllSaysACauseOnce(t *testing.T) {
	full := errors.New("disk full")
	errs := commtest.Ranks(t.Context(), 2, func(ctx context.Context, world *comm.Comm) error {
		m, err := message.New(ctx, world)
		if err != nil {
			return err
		}
		if world.Rank() == 1 {
			return full
		}
		requests := []*message.Request{message.IRecv(m, make([]int, 1), 7, 0)}
		for tag := range 100 {
			requests = append(requests, message.IRecv(m, make([]int, 1), 1, tag))
		}
		return message.WaitAll(ctx, requests...)
	})
	got := fmt.Sprint(errs[0])
	if !strings.Contains(got, "there is no rank 7") || strings.Count(got, "disk full") != 1 {
		t.Errorf("got %s", got)
	}
}

// TestStats: every send and receive is counted once, of numbers and of structs, with a recording and without, and the
// counts outlive the mailbox.
func TestStats(t *testing.T) {
	type pair struct{ A, B int64 }
	for r, err := range commtest.Ranks(t.Context(), 2, func(ctx context.Context, world *comm.Comm) error {
		m, err := message.New(ctx, world)
		if err != nil {
			return err
		}
		other := 1 - world.Rank()
		exchange := func() error {
			in, pairs := message.IRecv(m, make([]int32, 3), other, 1), message.IRecv(m, make([]pair, 2), other, 2)
			out, more := message.ISend(m, make([]int32, 3), other, 1), message.ISend(m, make([]pair, 2), other, 2)
			return message.WaitAll(ctx, in, pairs, out, more)
		}
		if err := exchange(); err != nil {
			return err
		}
		recording := world.Record()
		if err := exchange(); err != nil {
			return err
		}
		if n := len(recording.Stop()); n != 4 {
			return fmt.Errorf("%d calls were recorded, want 4", n)
		}
		want := comm.Count{Calls: 4, Bytes: 2 * (12 + 32)}
		for _, when := range []string{"before Close", "after it"} {
			s := world.Stats().Kinds
			if s[comm.TaggedSendKind] != want || s[comm.TaggedRecvKind] != want {
				return fmt.Errorf("%s: sends %v, receives %v, want %v", when, s[comm.TaggedSendKind], s[comm.TaggedRecvKind], want)
			}
			if when == "before Close" {
				err = m.Close(ctx)
			}
		}
		return err
	}) {
		if err != nil {
			t.Error(r, err)
		}
	}
}

// TestSendRecvOfTwoTypes: the elements that a SendRecv sends may be structs, and those that it receives numbers.
func TestSendRecvOfTwoTypes(t *testing.T) {
	type pair struct{ A, B int64 }
	for r, err := range commtest.Ranks(t.Context(), 2, func(ctx context.Context, world *comm.Comm) error {
		m, err := message.New(ctx, world)
		if err != nil {
			return err
		}
		numbers, pairs := []int64{7}, []pair{{3, 4}}
		if world.Rank() == 0 {
			numbers[0] = 0
			_, err = message.SendRecv(ctx, m, numbers, 1, 1, pairs, 1, 1)
		} else {
			pairs[0] = pair{}
			_, err = message.SendRecv(ctx, m, pairs, 0, 1, numbers, 0, 1)
		}
		if err != nil || numbers[0] != 7 || pairs[0] != (pair{3, 4}) {
			return fmt.Errorf("got %v and %v, %v", numbers, pairs, err)
		}
		return m.Close(ctx)
	}) {
		if err != nil {
			t.Error(r, err)
		}
	}
}

// TestObjectsAreCalledSo: errors say that a message is of SendObject or for RecvObject, not how it is sent.
func TestObjectsAreCalledSo(t *testing.T) {
	for name, c := range map[string]struct {
		call func(ctx context.Context, m *message.Mailbox) error
		says string
	}{
		"numbers for an object": {func(ctx context.Context, m *message.Mailbox) error {
			if err := message.Send(ctx, m, []float32{1}, 0, 7); err != nil {
				return err
			}
			_, _, err := message.RecvObject[string](ctx, m, 0, 7)
			return err
		}, "what has come is float32[1] from rank 0, tag 7, and this receive is of an object; "},
		"an object for numbers": {func(ctx context.Context, m *message.Mailbox) error {
			if err := message.SendObject(ctx, m, "x", 0, 7); err != nil {
				return err
			}
			_, err := message.Recv(ctx, m, make([]int32, 9), 0, 7)
			return err
		}, " bytes from rank 0, tag 7, and this receive is of int32[9]; "},
		"a struct that nobody receives": {func(ctx context.Context, m *message.Mailbox) error {
			if err := message.Send(ctx, m, make([]struct{ A, B int32 }, 1), 0, 7); err != nil {
				return err
			}
			return m.Close(ctx)
		}, "1 message was not received, 1 element of a struct or array of 8 bytes from rank 0, tag 7; Recv it"},
	} {
		err := commtest.Ranks(t.Context(), 1, func(ctx context.Context, world *comm.Comm) error {
			m, err := message.New(ctx, world)
			if err != nil {
				return err
			}
			return c.call(ctx, m)
		})[0]
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// Ranks that wait for objects of each other are told so in the words of the calls that they made.
func TestWaitsForObjects(t *testing.T) {
	for r, err := range commtest.Ranks(t.Context(), 2, func(ctx context.Context, world *comm.Comm) error {
		m, err := message.New(ctx, world)
		if err != nil {
			return err
		}
		_, _, err = message.RecvObject[string](ctx, m, 1-world.Rank(), 3)
		return err
	}) {
		want := fmt.Sprintf("message.RecvObject from rank %d, tag 3 at message/message_test.go:", 1-r)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "oded") {
			t.Errorf("rank %d: got %v, want %q", r, err, want)
		}
	}
}
