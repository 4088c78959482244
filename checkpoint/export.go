package checkpoint

import (
	"context"
	"fmt"
	"slices"
	"unsafe"

	"github.com/gorun-spmd/gorun/checkpoint/safetensors"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
)

// slabElems is how many elements of a tensor travel to the writing rank at a time.
const slabElems = 1 << 20

// Export writes the whole tensors of state into one safetensors file, as other
// programs read it. metadata goes into its header and may be nil; Hugging Face's
// transformers wants {"format": "pt"}. Values are not written.
//
// The tensors come to the first rank a few MiB at a time, so no rank ever holds
// more of the model than its own shards. The file appears under its name when it
// is complete. Export is collective over world and its error the same on every
// rank.
func Export(ctx context.Context, world *comm.Comm, path string, state *State, metadata map[string]string) error {
	if err := export(ctx, world, osFS{}, path, state, metadata, slabElems); err != nil {
		return fmt.Errorf("checkpoint: Export: %w", err)
	}
	return nil
}

func export(ctx context.Context, c *comm.Comm, fs fileSystem, path string, state *State, metadata map[string]string, slab int) error {
	err := state.err
	var h *safetensors.Header
	if err == nil {
		var list []safetensors.Tensor
		for _, t := range state.tensors {
			list = append(list, safetensors.Tensor{Name: t.name, DType: t.DType(), Shape: t.Shape()})
		}
		h, err = safetensors.NewHeader(metadata, list)
	}
	if err := agree(ctx, c, err); err != nil {
		return err
	}
	e := exporter{c: c, position: map[int]int{}}
	for r := range c.Size() {
		e.position[c.WorldRank(r)] = r
	}
	send := func(f file) error {
		for _, entry := range h.Tensors {
			i := slices.IndexFunc(state.tensors, func(t namedTensor) bool { return t.name == entry.Name })
			if err := e.tensor(ctx, f, state.tensors[i], slab); err != nil {
				return err
			}
		}
		return nil
	}
	// All ranks agree twice: when everything has arrived, and when the file has its name.
	if c.Rank() != 0 {
		if err := send(nil); err != nil {
			return err
		}
		if err := agree(ctx, c, e.err); err != nil {
			return err
		}
		return agree(ctx, c, nil)
	}
	var ended error // told to all, or of the communicator
	begun := false
	arrive := func(f file) error {
		begun = true
		if ended = send(f); ended == nil {
			ended = agree(ctx, c, e.err)
		}
		return ended
	}
	err = publish(fs, path, func(f file) error {
		e.err = writeAll(f, h.Encode())
		return arrive(f)
	})
	if !begun { // the file could not be made: the others send all the same
		e.err = err
		return arrive(nil)
	}
	if ended != nil {
		return ended
	}
	return agree(ctx, c, err)
}

// An exporter sends tensors to rank 0.
type exporter struct {
	c        *comm.Comm
	position map[int]int // in c, by world rank
	err      error       // the first of this rank alone; its collectives go on
	src, dst []byte
}

// tensor writes t into f on rank 0. It returns errors of the communicator only.
func (e *exporter) tensor(ctx context.Context, f file, t namedTensor, slab int) error {
	elem := t.DType().Size()
	owners := e.owners(t.Tensor)
	counts := make([]int, e.c.Size())
	var failed error
	slabs(t.Shape(), slab, func(s box) bool {
		clear(counts)
		for _, o := range owners {
			runs(s, o.box, func(u run) bool { counts[o.writer] += u.n * elem; return true })
		}
		e.src = e.pack(ctx, t.Tensor, owners, s, counts[e.c.Rank()])
		if e.c.Rank() == 0 {
			e.dst = resize(e.dst, s.numel()*elem)
		}
		if failed = comm.GatherV(ctx, e.c, e.dst, e.src, counts, 0); failed != nil {
			return false
		}
		if f != nil && e.err == nil {
			e.err = writeAll(f, unpack(e.dst, owners, s, elem))
		}
		return true
	})
	return failed
}

// owners says who sends which box: one holder of each shard, rank 0 if it can, in
// the order of ranks.
func (e *exporter) owners(t *dtensor.Tensor) []piece {
	var list []piece
	for _, s := range shards(t) {
		writer := e.position[s.holders[0]]
		for _, r := range s.holders {
			writer = min(writer, e.position[r])
		}
		list = append(list, piece{writer: writer, box: s.box})
	}
	slices.SortFunc(list, func(a, b piece) int { return a.writer - b.writer })
	return list
}

// pack returns the elements that this rank sends of a slab, n bytes.
func (e *exporter) pack(ctx context.Context, t *dtensor.Tensor, owners []piece, s box, n int) []byte {
	e.src = resize(e.src, n)
	if n == 0 {
		return e.src
	}
	at, elem := 0, t.DType().Size()
	err := dtensor.Try(ctx, t.Mesh(), func() {
		x := t.ToLocal()
		for _, o := range owners {
			if o.writer != e.c.Rank() {
				continue
			}
			runs(s, o.box, func(u run) bool {
				x.Device().ToHost(unsafe.Pointer(&e.src[at]), unsafe.Add(x.Ptr(), u.y*elem), u.n*elem)
				at += u.n * elem
				return true
			})
		}
	})
	if e.err == nil {
		e.err = err
	}
	return e.src
}

// unpack puts what the owners sent of a slab in order.
func unpack(sent []byte, owners []piece, s box, elem int) []byte {
	if len(owners) == 1 {
		return sent
	}
	b := make([]byte, len(sent))
	at := 0
	for _, o := range owners {
		runs(s, o.box, func(u run) bool {
			at += copy(b[u.x*elem:(u.x+u.n)*elem], sent[at:])
			return true
		})
	}
	return b
}

func resize(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}

// slabs calls yield for boxes of at most most elements which, one after the
// other, are all elements of the shape in row-major order.
func slabs(shape []int, most int, yield func(box) bool) {
	b := box{make([]int, len(shape)), slices.Clone(shape)}
	if b.numel() == 0 {
		return
	}
	// Dimensions after cut are whole, cut is divided, those before go one by one.
	cut, inner := len(shape)-1, 1
	for cut > 0 && inner*shape[cut] <= most {
		inner *= shape[cut]
		cut--
	}
	if len(shape) == 0 {
		yield(b)
		return
	}
	step := max(1, most/inner)
	for d := range cut {
		b.size[d] = 1
	}
	for {
		b.size[cut] = min(step, shape[cut]-b.offset[cut])
		if !yield(box{slices.Clone(b.offset), slices.Clone(b.size)}) {
			return
		}
		b.offset[cut] += b.size[cut]
		d := cut
		for b.offset[d] >= shape[d] {
			b.offset[d] = 0
			if d--; d < 0 {
				return
			}
			b.offset[d]++
		}
	}
}
