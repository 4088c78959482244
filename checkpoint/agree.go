package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc64"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
)

// agree returns the error of the lowest rank that has one, on every rank; nil if
// none has. Damage is damage on every rank. An error of c itself is returned as it is.
func agree(ctx context.Context, c *comm.Comm, err error) error { return agreeOn(ctx, c, "", err) }

// agreeOn is agree, and where no rank has an error it is one, on every rank, that ranks were given
// other things, such as another step.
func agreeOn(ctx context.Context, c *comm.Comm, given string, err error) error {
	digest := int64(crc64.Checksum([]byte(given), crc64.MakeTable(crc64.ECMA)) >> 1)
	first := []int64{int64(c.Size()), digest, -digest}
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
		return differ(ctx, c, given)
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

// differ names the first rank that was given something else than the first one.
func differ(ctx context.Context, c *comm.Comm, given string) error {
	all, err := comm.AllGatherSlices(ctx, c, []byte(given))
	if err != nil {
		return err
	}
	r := slices.IndexFunc(all, func(its []byte) bool { return !bytes.Equal(its, all[0]) })
	return fmt.Errorf("rank %d has the %s and rank %d the %s; give the same on every rank", c.WorldRank(0), all[0], c.WorldRank(r), all[r])
}

// onStep names a step for agreeOn.
func onStep(step int) string { return fmt.Sprintf("step %d", step) }
