package commtest_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
)

type settings struct {
	Name  string
	Sizes map[string]int
}

func (s settings) equal(to settings) bool { return s.Name == to.Name && maps.Equal(s.Sizes, to.Sizes) }

func TestObjects(t *testing.T) {
	of := func(r int) settings {
		return settings{strings.Repeat("x", 1000*r), map[string]int{"rank": r, "square": r * r}}
	}
	for _, n := range []int{1, 2, 3, 4, 7} {
		commtest.Run(t, n, func(ctx context.Context, w *comm.Comm) error {
			root := n - 1
			got, err := comm.BroadcastObject(ctx, w, of(w.Rank()), root)
			if err != nil || !got.equal(of(root)) {
				return fmt.Errorf("BroadcastObject: %v, %v", got, err)
			}
			want := make([]settings, n)
			for r := range want {
				want[r] = of(r)
			}
			all, err := comm.AllGatherObjects(ctx, w, of(w.Rank()))
			if err != nil || !slices.EqualFunc(all, want, settings.equal) {
				return fmt.Errorf("AllGatherObjects: %v, %v", all, err)
			}
			sent := make([]settings, n)
			for r := range sent {
				sent[r] = of(n*w.Rank() + r)
			}
			came, err := comm.AllToAllObjects(ctx, w, sent)
			for r := range sent {
				sent[r] = of(n*r + w.Rank())
			}
			if err != nil || !slices.EqualFunc(came, sent, settings.equal) {
				return fmt.Errorf("AllToAllObjects: %v, %v", came, err)
			}
			got, err = comm.ScatterObjects(ctx, w, want, root) // want is not used on other ranks
			if err != nil || !got.equal(of(w.Rank())) {
				return fmt.Errorf("ScatterObjects: %v, %v", got, err)
			}
			if w.Rank() != root {
				want = nil
			}
			if got, err = comm.ScatterObjects(ctx, w, want, root); err != nil || !got.equal(of(w.Rank())) {
				return fmt.Errorf("ScatterObjects from rank %d alone: %v, %v", root, got, err)
			}
			if all, err = comm.GatherObjects(ctx, w, of(w.Rank()), root); err != nil || !slices.EqualFunc(all, want, settings.equal) {
				return fmt.Errorf("GatherObjects: %v, %v", all, err)
			}
			if err := blanks(ctx, w, root); err != nil {
				return err
			}
			// encoding/gob takes no channels: every rank gets an error, and the communicator works on.
			_, err = comm.BroadcastObject(ctx, w, make(chan int), root)
			if err == nil || !strings.Contains(err.Error(), "BroadcastObject") || !strings.Contains(err.Error(), "(at commtest/objects_test.go:") {
				return fmt.Errorf("BroadcastObject of a channel: %v", err)
			}
			if _, err = comm.AllGatherObjects(ctx, w, make(chan int)); err == nil {
				return fmt.Errorf("AllGatherObjects of a channel gives no error")
			}
			_, err = comm.AllToAllObjects(ctx, w, make([]chan int, n))
			if err == nil || !strings.Contains(err.Error(), "AllToAllObjects") {
				return fmt.Errorf("AllToAllObjects of channels: %v", err)
			}
			_, err = comm.ScatterObjects(ctx, w, make([]chan int, n), root)
			if err == nil || !strings.Contains(err.Error(), "ScatterObjects") {
				return fmt.Errorf("ScatterObjects of channels: %v", err)
			}
			return comm.Barrier(ctx, w)
		})
	}
}

// blanks broadcasts values with parts that are 0 or nil, which a rank has otherwise.
func blanks(ctx context.Context, w *comm.Comm, root int) error {
	type record struct {
		Count int
		Names []string
		Sizes map[string]int
	}
	var v record
	var at *int
	var value any
	if w.Rank() != root {
		v = record{w.Rank() + 1, []string{"mine"}, map[string]int{"mine": 1}}
		at, value = new(int), "mine"
	}
	got, err := comm.BroadcastObject(ctx, w, v, root)
	if err != nil || got.Count != 0 || got.Names != nil || len(got.Sizes) != 0 {
		return fmt.Errorf("BroadcastObject of a record of zeros: %+v, %v", got, err)
	}
	if w.Rank() != root && v.Sizes["mine"] != 1 {
		return fmt.Errorf("BroadcastObject changed the map that it was given: %v", v.Sizes)
	}
	if at, err = comm.BroadcastObject(ctx, w, at, root); err != nil || at != nil {
		return fmt.Errorf("BroadcastObject of a nil pointer: %v, %v", at, err)
	}
	if value, err = comm.BroadcastObject(ctx, w, value, root); err != nil || value != nil {
		return fmt.Errorf("BroadcastObject of nil: %v, %v", value, err)
	}
	all, err := comm.AllGatherObjects[any](ctx, w, w.Rank())
	if err != nil || all[root] != root {
		return fmt.Errorf("AllGatherObjects of numbers as any: %v, %v", all, err)
	}
	return nil
}

// TestOneRankCannotEncode: the others' errors say which rank it is, and the communicator can be used again.
func TestOneRankCannotEncode(t *testing.T) {
	commtest.Run(t, 3, func(ctx context.Context, w *comm.Comm) error {
		v := any(1)
		if w.Rank() == 1 {
			v = make(chan int)
		}
		values := []any{v, v, v}
		for _, test := range []struct {
			name string
			call func() error
		}{
			{"AllGatherObjects", func() error { _, err := comm.AllGatherObjects(ctx, w, v); return err }},
			{"AllToAllObjects", func() error { _, err := comm.AllToAllObjects(ctx, w, values); return err }},
			{"BroadcastObject", func() error { _, err := comm.BroadcastObject(ctx, w, v, 1); return err }},
			{"ScatterObjects", func() error { _, err := comm.ScatterObjects(ctx, w, values, 1); return err }},
		} {
			if err := comm.Barrier(ctx, w); err != nil {
				return err
			}
			want := fmt.Sprintf("comm: %s (rank %d): rank 1 could not encode its value", test.name, w.Rank())
			if err := test.call(); err == nil || w.Rank() != 1 && !strings.HasPrefix(err.Error(), want) {
				return fmt.Errorf("got %v, want %s", err, want)
			}
		}
		return nil
	})
}
