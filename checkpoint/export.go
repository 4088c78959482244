package checkpoint

import (
	"context"
	"fmt"
	"io"
	"iter"
	"math"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"github.com/gorun-spmd/gorun/checkpoint/safetensors"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// slabElems is how many elements of a tensor are sent to the writing rank at a time.
const slabElems = 1 << 20

// Export writes the whole tensors of state as other programs read them: into the
// file path if that ends in .safetensors, else into a folder as Hugging Face keeps
// models,
//
//	path/model.safetensors                   if that is not too large
//
//	path/model-00001-of-00003.safetensors    else several, and which of them
//	…                                        has each tensor
//	path/model.safetensors.index.json
//
// which may have other files, but no model. Values are not written.
//
// The tensors come to the first rank a few MiB at a time, so no rank ever holds
// more of the model than its own shards. A file appears under its name when it
// is complete, and what makes a folder a model appears last. Export is collective
// over world and its error the same on every rank. In a program that runs for gorun plan
// it checks the names and writes nothing.
func Export(ctx context.Context, world *comm.Comm, path string, state *State, o ExportOptions) (err error) {
	defer fault.Locate(&err)
	if err := export(ctx, world, osFS{}, path, state, o); err != nil {
		return fmt.Errorf("checkpoint: Export: %w", err)
	}
	return nil
}

func export(ctx context.Context, c *comm.Comm, fs fileSystem, path string, state *State, o ExportOptions) error {
	if o.slab == 0 {
		o.slab = slabElems
	}
	now, free := state.asSaved(ctx)
	defer free()
	state = &now
	err := state.err
	if o.MaxFileBytes < 0 {
		err = fmt.Errorf("option MaxFileBytes is %d; give 1 or more, or 0 for 5 GB", o.MaxFileBytes)
	}
	if o.MaxFileBytes == 0 {
		o.MaxFileBytes = 5e9
	}
	if err := agree(ctx, c, err); err != nil {
		return err
	}
	sorted := state.sorted()
	if err := sameState(ctx, c, &sorted); err != nil {
		return err
	}
	tensors, err := arrange(sorted.tensors, o.Map, func(name string) string { return name })
	for i := range tensors {
		if err == nil {
			err = tensors[i].complete()
		}
	}
	if err := agree(ctx, c, err); err != nil || isPlanned(c) {
		return err
	}
	slices.SortFunc(tensors, func(a, b fileTensor) int { return strings.Compare(a.name, b.name) })
	if !strings.HasSuffix(path, ".safetensors") {
		return exportFolder(ctx, c, fs, path, tensors, o)
	}
	o.MaxFileBytes = math.MaxInt
	volumes, err := divide(tensors, o)
	if err := agree(ctx, c, err); err != nil {
		return err
	}
	return exportFile(ctx, c, fs, path, volumes[0].header, tensors, o.slab)
}

// exportFile writes the tensors that h has into one file.
func exportFile(ctx context.Context, c *comm.Comm, fs fileSystem, path string, h *safetensors.Header, tensors []fileTensor,
	slab int) error {
	byName := map[string]*fileTensor{}
	for i := range tensors {
		byName[tensors[i].name] = &tensors[i]
	}
	ordered := make([]*fileTensor, len(h.Tensors))
	for i, entry := range h.Tensors {
		ordered[i] = byName[entry.Name]
	}
	senders, err := sendersOf(ctx, c, ordered)
	if err != nil {
		return err
	}
	e := exporter{c: c}
	send := func(f io.Writer) error {
		for i, t := range ordered {
			if err := e.tensor(ctx, f, t, senders[i], slab); err != nil {
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
	arrive := func(f io.Writer) error {
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
		e.err = wantFolder(err, path)
		return arrive(nil)
	}
	if ended != nil {
		return ended
	}
	return agree(ctx, c, err)
}

// sendersOf says for each tensor which rank sends which box of it.
func sendersOf(ctx context.Context, c *comm.Comm, tensors []*fileTensor) ([][]piece, error) {
	boxes, err := boxesOf(ctx, c, tensors)
	if err != nil {
		return nil, err
	}
	list := make([][]piece, len(tensors))
	for i := range list {
		list[i] = owners(boxes[i])
	}
	return list, nil
}

// An exporter sends tensors to rank 0.
type exporter struct {
	c        *comm.Comm
	err      error // the first of this rank alone; its collectives go on
	src, dst []byte
}

// tensor writes t into f on rank 0. It returns errors of the communicator only.
func (e *exporter) tensor(ctx context.Context, f io.Writer, t *fileTensor, owners []piece, slab int) error {
	elem := t.dtype().Size()
	counts := make([]int, e.c.Size())
	parts, err := t.tryParts()
	if e.err == nil {
		e.err = err
	}
	for _, p := range parts {
		if p.rows != nil && e.err == nil {
			e.err = p.rows.Sync()
		}
	}
	for s := range slabs(t.shape, slab) {
		clear(counts)
		for _, o := range owners {
			for u := range runs(s, o.box) {
				counts[o.writer] += u.n * elem
			}
		}
		e.pack(parts, owners, s, counts[e.c.Rank()], elem)
		if e.c.Rank() == 0 {
			e.dst = resize(e.dst, s.numel()*elem)
		}
		if err := comm.GatherV(ctx, e.c, e.dst, e.src, counts, 0); err != nil {
			return err
		}
		if f != nil && e.err == nil {
			e.err = writeAll(f, unpack(e.dst, owners, s, elem))
		}
	}
	return nil
}

// pack copies the n bytes that this rank sends of a slab into e.src. After an error of
// this rank they are anything.
func (e *exporter) pack(parts []localPart, owners []piece, s box, n, elem int) {
	e.src = resize(e.src, n)
	if e.err != nil {
		return
	}
	at := 0
	for _, o := range owners {
		if o.writer != e.c.Rank() {
			continue
		}
		i := slices.IndexFunc(parts, func(p localPart) bool {
			return slices.Equal(p.box.offset, o.box.offset) && slices.Equal(p.box.size, o.box.size)
		})
		x := parts[i].data
		for u := range runs(s, o.box) {
			if rows := parts[i].rows; rows != nil {
				if e.err = readStored(rows, u.y*elem, e.src[at:at+u.n*elem], parts[i].box.numel()/parts[i].box.size[0]*elem); e.err != nil {
					return
				}
				at += u.n * elem
				continue
			}
			x.Device().ToHost(unsafe.Pointer(&e.src[at]), unsafe.Add(x.Ptr(), u.y*elem), u.n*elem)
			at += u.n * elem
		}
	}
	runtime.KeepAlive(parts)
}

// unpack puts what the owners sent of a slab in order.
func unpack(sent []byte, owners []piece, s box, elem int) []byte {
	if len(owners) == 1 {
		return sent
	}
	b := make([]byte, len(sent))
	at := 0
	for _, o := range owners {
		for u := range runs(s, o.box) {
			at += copy(b[u.x*elem:(u.x+u.n)*elem], sent[at:])
		}
	}
	return b
}

func resize(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}

// slabs lists boxes of at most most elements which, one after the other, are all
// elements of the shape in row-major order.
func slabs(shape []int, most int) iter.Seq[box] {
	return func(yield func(box) bool) {
		b := box{make([]int, len(shape)), slices.Clone(shape)}
		if b.numel() == 0 {
			return
		}
		if len(shape) == 0 {
			yield(b)
			return
		}
		// Dimensions after cut are whole, cut is divided, those before go one by one.
		cut, inner := len(shape)-1, 1
		for cut > 0 && inner*shape[cut] <= most {
			inner *= shape[cut]
			cut--
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
}
