package checkpoint

import (
	"context"
	"errors"
	"fmt"

	"github.com/gorun-spmd/gorun/comm"
)

// agree returns the error of the lowest rank that has one, on every rank; nil if
// none has. Damage is damage on every rank. An error of c itself is returned as it is.
func agree(ctx context.Context, c *comm.Comm, err error) error {
	first := []int64{int64(c.Size())}
	if err != nil {
		first[0] = int64(c.Rank())
	}
	buf := comm.Of(first)
	if failed := c.Do(ctx, comm.Call{Kind: comm.AllReduceKind, Op: comm.Min, Dst: buf, Src: buf, Cause: "package checkpoint"}); failed != nil {
		return failed
	}
	if first[0] == int64(c.Size()) {
		return nil
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
