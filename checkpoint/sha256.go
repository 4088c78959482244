package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// SHA256 returns the SHA-256, in hex, of the tensors of state, the same on every rank: of, for
// each tensor in the order of their names, a line "name dtype [shape]\n" and its elements in
// row-major order, as they lie in memory. It does not depend on how the tensors are divided.
// They come to the first rank a few MiB at a time. Values are not in it. It is collective over
// world. In a program that runs for gorun plan, which has no numbers, it is zeros.
func SHA256(ctx context.Context, world *comm.Comm, state *State) (_ string, err error) {
	defer fault.Locate(&err)
	sum, err := sha256Of(ctx, world, state)
	if err != nil {
		return "", fmt.Errorf("checkpoint: SHA256: %w", err)
	}
	return hex.EncodeToString(sum), nil
}

func sha256Of(ctx context.Context, c *comm.Comm, state *State) ([]byte, error) {
	now, free := state.asSaved(ctx)
	defer free()
	if err := agree(ctx, c, now.err); err != nil {
		return nil, err
	}
	sorted := now.sorted()
	if err := sameState(ctx, c, &sorted); err != nil {
		return nil, err
	}
	tensors, err := arrange(sorted.tensors, nil, func(name string) string { return name })
	if err := agree(ctx, c, err); err != nil {
		return nil, err
	}
	if isPlanned(c) {
		return make([]byte, sha256.Size), nil
	}
	ordered := make([]*fileTensor, len(tensors))
	for i := range tensors {
		ordered[i] = &tensors[i]
	}
	senders, err := sendersOf(ctx, c, ordered)
	if err != nil {
		return nil, err
	}
	h, e := sha256.New(), exporter{c: c}
	for i, t := range ordered {
		fmt.Fprintf(h, "%s %v %v\n", t.name, t.dtype(), t.shape)
		var to io.Writer
		if c.Rank() == 0 {
			to = h
		}
		if err := e.tensor(ctx, to, t, senders[i], slabElems); err != nil {
			return nil, err
		}
	}
	if err := agree(ctx, c, e.err); err != nil {
		return nil, err
	}
	return comm.BroadcastSlices(ctx, c, h.Sum(nil), 0)
}
