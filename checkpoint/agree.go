package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
)

// agree returns the error of the lowest rank that has one, on every rank; nil if
// none has. Damage is damage on every rank. An error of c itself is returned as it is.
func agree(ctx context.Context, c *comm.Comm, err error) error { return agreeOnStep(ctx, c, 0, err) }

// agreeOnStep is agree, and where no rank has an error it is one, on every rank, that ranks were given other steps.
func agreeOnStep(ctx context.Context, c *comm.Comm, step int, err error) error {
	first := []int64{int64(c.Size()), int64(step), int64(-step)}
	if err != nil {
		first[0] = int64(c.Rank())
	}
	buf := comm.Of(first)
	if failed := c.Do(ctx, comm.Call{Kind: comm.AllReduceKind, Op: comm.Min, Dst: buf, Src: buf, Cause: "package checkpoint"}); failed != nil {
		return failed
	}
	if first[0] == int64(c.Size()) {
		if first[1] == -first[2] {
			return nil
		}
		return differ(ctx, c, step)
	}
	root := int(first[0])
	const plain, damage = 'p', 'd'
	var text []byte // its kind and its words
	switch {
	case isDamage(err):
		text = append([]byte{damage}, err.Error()...)
	case err != nil:
		text = append([]byte{plain}, err.Error()...)
	}
	text, failed := comm.BroadcastSlices(ctx, c, text, root)
	if failed != nil {
		return failed
	}
	if c.Rank() != root {
		if err = errors.New(string(text[1:])); text[0] == damage {
			err = &damageError{err}
		}
	}
	if c.Size() == 1 {
		return err
	}
	return fmt.Errorf("rank %d: %w", c.WorldRank(root), err)
}

// differ names the first rank that was given another step than the first one.
func differ(ctx context.Context, c *comm.Comm, step int) error {
	all := make([]int64, c.Size())
	if err := comm.AllGather(ctx, c, all, []int64{int64(step)}); err != nil {
		return err
	}
	r := slices.IndexFunc(all, func(its int64) bool { return its != all[0] })
	return fmt.Errorf("rank %d has the step %d and rank %d the step %d; give the same on every rank",
		c.WorldRank(0), all[0], c.WorldRank(r), all[r])
}
