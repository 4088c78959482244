//go:build linux

package data

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/internal/snapshot"
)

// What an attempt has made the next one takes from memory, on as many ranks or others; not what
// did not fit, nor what is damaged.
func TestShareKept(t *testing.T) {
	f, err := snapshot.Create()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	share := func(ranks, room int, name, want string, makes bool) {
		t.Helper()
		commtest.Run(t, ranks, func(ctx context.Context, world *comm.Comm) error {
			at := &job.Snapshots{File: f, Reserve: func(bytes int) error {
				if bytes > room {
					return errors.New("it does not fit")
				}
				return nil
			}}
			made := false
			got, err := ShareKept(job.WithSnapshots(ctx, at), world, name, func() ([]byte, error) {
				made = true
				return []byte(want), nil
			})
			if err != nil || string(got) != want || made != (makes && world.Rank() == 0) {
				return fmt.Errorf("%s: %q, %w, made: %v; want %q", name, got, err, made, want)
			}
			return nil
		})
	}
	share(3, 100, "a", "some bytes", true)
	share(3, 100, "a", "some bytes", false)
	share(2, 100, "a", "some bytes", false)
	share(4, 5, "a", "some bytes", false)
	share(4, 5, "b", "more bytes", true)
	share(4, 5, "b", "more bytes", true)
	if err := snapshot.Keep(f, "a", []byte("other bytes")); err != nil {
		t.Fatal(err)
	}
	share(3, 100, "a", "other bytes", false)
	commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error { // without gorun --elastic
		if got, err := ShareKept(ctx, world, "a", func() ([]byte, error) { return []byte("new"), nil }); err != nil || string(got) != "new" {
			return fmt.Errorf("%q, %w", got, err)
		}
		return nil
	})
}
