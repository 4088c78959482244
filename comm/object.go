package comm

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/object"
)

// The functions below move Go values of any type, as package encoding/gob writes them: maps,
// strings, structs. They are for what is small and irregular. Numbers in slices go faster by the
// other functions.

// BroadcastObject returns on every rank the v of rank root. v is not used on other ranks. It may be nil.
//
// It moves, as the other functions of objects do, what package encoding/gob writes. A field that gob
// would leave out is an error: one whose name begins with no capital letter, or a pointer to a zero.
// So is a pointer to what it is part of.
func BroadcastObject[T any](ctx context.Context, c *Comm, v T, root int) (T, error) {
	var data []byte
	var failed error
	if c.is(root) {
		data, failed = object.Encode(v) // no bytes if that failed, some otherwise: the other ranks must not wait
	}
	data, err := BroadcastSlices(ctx, c, data, root)
	if err != nil {
		return v, err
	}
	switch {
	case failed != nil:
	case c.Rank() == root:
		return v, nil
	default:
		v, failed = decode[T](c, data, root)
	}
	if failed != nil {
		return v, objectError(c, "BroadcastObject", failed)
	}
	return v, nil
}

// ScatterObjects returns on rank r the vs[r] of rank root. vs is not used on other ranks; on root len(vs)
// must be c.Size().
func ScatterObjects[T any](ctx context.Context, c *Comm, vs []T, root int) (v T, err error) {
	var failed error
	parts := make([][]byte, len(vs))
	for r := 0; r < len(vs) && c.is(root) && failed == nil; r++ {
		parts[r], failed = object.Encode(vs[r])
	}
	if failed != nil {
		clear(parts) // no bytes if that failed, some otherwise: the other ranks must not wait
	}
	data, err := ScatterSlices(ctx, c, parts, root)
	if err != nil {
		return v, err
	}
	if failed == nil {
		v, failed = decode[T](c, data, root)
	}
	if failed != nil {
		return v, objectError(c, "ScatterObjects", failed)
	}
	return v, nil
}

// GatherObjects returns on rank root the v of rank 0, of rank 1, and so on, and nil on the
// other ranks.
func GatherObjects[T any](ctx context.Context, c *Comm, v T, root int) ([]T, error) {
	return gatherObjects(c, "GatherObjects", v, func(data []byte) ([][]byte, error) { return GatherSlices(ctx, c, data, root) })
}

// AllGatherObjects returns on every rank what GatherObjects returns on root.
func AllGatherObjects[T any](ctx context.Context, c *Comm, v T) ([]T, error) {
	return gatherObjects(c, "AllGatherObjects", v, func(data []byte) ([][]byte, error) { return AllGatherSlices(ctx, c, data) })
}

// AllToAllObjects sends vs[r] to rank r and returns what rank 0 has sent here, rank 1, and so on. len(vs) must
// be c.Size().
func AllToAllObjects[T any](ctx context.Context, c *Comm, vs []T) ([]T, error) {
	var failed error
	parts := make([][]byte, len(vs))
	for r := 0; r < len(vs) && failed == nil; r++ {
		parts[r], failed = object.Encode(vs[r])
	}
	if failed != nil {
		clear(parts)
	}
	parts, err := AllToAllSlices(ctx, c, parts)
	return decoded[T](c, "AllToAllObjects", parts, failed, err)
}

// gatherObjects has gather carry the encoded values, and returns those that it returns.
func gatherObjects[T any](c *Comm, op string, v T, gather func(data []byte) ([][]byte, error)) ([]T, error) {
	data, failed := object.Encode(v)
	parts, err := gather(data)
	return decoded[T](c, op, parts, failed, err)
}

// decoded returns the values that ranks have sent. err is that of sending them, failed that of encoding what this rank sends:
// no bytes are sent then.
func decoded[T any](c *Comm, op string, parts [][]byte, failed, err error) ([]T, error) {
	if err != nil {
		return nil, err
	}
	if failed != nil {
		return nil, objectError(c, op, failed)
	}
	var all []T
	for r, part := range parts {
		value, err := decode[T](c, part, r)
		if err != nil {
			return nil, objectError(c, op, err)
		}
		all = append(all, value)
	}
	return all, nil
}

// decode returns the value that rank from of c has sent, or an error that names the rank.
func decode[T any](c *Comm, data []byte, from int) (v T, err error) {
	if len(data) == 0 {
		return v, fmt.Errorf("rank %d could not encode its value, as its error says", c.world[from])
	}
	if v, err = object.Decode[T](data); err != nil {
		err = fmt.Errorf("the value of rank %d: %w", c.world[from], err)
	}
	return v, err
}

// objectError is the error of a value that encoding/gob does not take. The communicator can
// be used again.
func objectError(c *Comm, op string, err error) error {
	return fault.Located(fmt.Errorf("comm: %s (rank %d): %w; give values that encoding/gob takes, of one type on all ranks", op,
		c.world[c.rank], err))
}
