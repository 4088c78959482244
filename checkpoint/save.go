package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	iofs "io/fs"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"github.com/gorun-spmd/gorun/checkpoint/safetensors"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
)

// A snapshot is a state as it was when Save was called, of which this rank has
// its pieces in host memory. Nothing in it is shared with the program.
type snapshot struct {
	step   int
	state  State // for names and layouts alone
	plan   plan
	values map[string]json.RawMessage
	data   []byte // what follows the header of this rank's file, except for what lies on a disk
	err    error  // why there is nothing to write
	free   func() // is called when all is written; nil: nothing is to do
}

// A plan says who writes what. It depends on names, types and layouts alone, so
// one serves every save of a State.
type plan struct {
	tensors []namedTensor
	pieces  map[string]piece    // of this rank, by their names in its file
	header  *safetensors.Header // of this rank's file; nil if it has none
}

// snapshot copies what this rank is to write.
func (s *Store) snapshot(ctx context.Context, step int, state *State) (snap snapshot) {
	now, free := state.asSaved(ctx)
	defer func() {
		if snap.plan.storesRows() {
			snap.free = free // when all is written
		} else {
			free()
		}
	}()
	state = &now
	snap = snapshot{step: step, state: state.sorted()}
	if snap.err = state.err; snap.err != nil {
		return snap
	}
	if s.o.ReadOnly {
		snap.err = errors.New("the store was opened with ReadOnly; open it without")
		return snap
	}
	if step < 0 {
		snap.err = fmt.Errorf("step %d; count steps from 0", step)
		return snap
	}
	if snap.values, snap.err = state.encodeValues(); snap.err != nil {
		return snap
	}
	if snap.plan, snap.err = s.plan.next(s.c.WorldRank(s.c.Rank()), snap.state.tensors); snap.err == nil {
		s.plan = snap.plan
		snap.data, snap.err = s.copyData(ctx, snap.plan)
	}
	return snap
}

// next returns the plan of rank me for tensors: that of the last save, before, if it was for
// the same names, types and layouts.
func (before plan) next(me int, tensors []namedTensor) (plan, error) {
	same := func(a, b namedTensor) bool {
		if a.name != b.name || a.shards != b.shards {
			return false
		}
		return a.shards != nil || a.dtype() == b.dtype() && a.tensor.Layout() == b.tensor.Layout() && a.mesh() == b.mesh()
	}
	if before.pieces != nil && slices.EqualFunc(tensors, before.tensors, same) {
		before.tensors = tensors
		return before, nil
	}
	p := plan{tensors: tensors, pieces: map[string]piece{}}
	names := map[string]bool{}
	for _, t := range tensors {
		names[t.name] = true
	}
	var list []safetensors.Tensor
	for _, piece := range assign(tensors, me) {
		if piece.writer != me {
			continue
		}
		t := tensors[piece.tensor]
		name := t.name
		if _, taken := p.pieces[name]; taken { // the second shard of a table is "table#2"
			for k := 2; taken || names[name]; k++ {
				name = fmt.Sprintf("%s#%d", t.name, k)
				_, taken = p.pieces[name]
			}
		}
		p.pieces[name] = piece
		list = append(list, safetensors.Tensor{Name: name, DType: t.dtype(), Shape: piece.box.size})
	}
	if len(list) > 0 {
		h, err := safetensors.NewHeader(map[string]string{"format": formatName}, list)
		if err != nil {
			return plan{}, err
		}
		p.header = h
	}
	return p, nil
}

// copyData copies this rank's part of the tensors into host memory.
func (s *Store) copyData(ctx context.Context, p plan) ([]byte, error) {
	if p.header == nil {
		return nil, nil
	}
	size := 0
	for _, entry := range p.header.Tensors {
		if !p.onDisk(entry.Name) {
			size += entry.Bytes
		}
	}
	s.host = resize(s.host, size)
	return s.host, dtensor.Try(ctx, p.tensors[0].mesh(), func() {
		at := 0
		for entry, data := range p.data() {
			if !p.onDisk(entry.Name) && entry.Bytes > 0 {
				data.Device().ToHost(unsafe.Pointer(&s.host[at]), data.Ptr(), entry.Bytes)
				at += entry.Bytes
			}
		}
	})
}

// onDisk reports whether the piece of a name has its rows on a disk.
func (p *plan) onDisk(name string) bool {
	_, ok := p.tensors[p.pieces[name].tensor].stored()
	return ok
}

// data yields the header's entries, each with this rank's part of the tensor.
func (p *plan) data() iter.Seq2[safetensors.Tensor, *tensor.Tensor] {
	return func(yield func(safetensors.Tensor, *tensor.Tensor) bool) {
		for _, entry := range p.header.Tensors {
			piece := p.pieces[entry.Name]
			parts := p.tensors[piece.tensor].parts()
			at := slices.IndexFunc(parts, func(part localPart) bool { return slices.Equal(part.box.offset, piece.box.offset) })
			if at >= 0 && !yield(entry, parts[at].data) {
				return
			}
		}
	}
}

// A part is what one rank tells the first about the file that it wrote.
type part struct {
	Err    string      `json:"err,omitempty"`
	Digest uint64      `json:"digest"`
	File   *fileEntry  `json:"file,omitempty"`
	Chunks []partChunk `json:"chunks,omitempty"`
}

type partChunk struct {
	Tensor string `json:"tensor"`
	chunkEntry
}

// commit writes the snapshots of all ranks and publishes them. Until the folder
// has its last name nothing of it counts. It runs in the background.
//
//  1. rank 0    makes root/step-N.tmp
//  2. each rank writes rank-R.safetensors there, and makes it durable
//  3. rank 0    hears from all, publishes the index, and with it all names there
//  4. rank 0    renames the folder to root/step-N, makes that durable
//  5. rank 0    removes checkpoints that are not to be kept
func (s *Store) commit(ctx context.Context, snap snapshot) error {
	var target publication
	err := snap.err
	if s.c.Rank() == 0 && err == nil {
		target, err = s.prepare(ctx, snap.step)
	}
	if err = agreeOnStep(ctx, s.c, snap.step, err); err != nil {
		return err
	}
	name, err := comm.BroadcastSlices(ctx, s.c, []byte(target.working), 0)
	if err != nil {
		return err
	}
	p, err := s.writePart(string(name), snap)
	if err != nil {
		p.Err = err.Error()
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err // of a struct of numbers and strings: never
	}
	parts, err := comm.GatherSlices(ctx, s.c, text, 0)
	if err != nil {
		return err
	}
	var problem []byte
	if s.c.Rank() == 0 {
		if err = missing(s.finish(ctx, target, snap, parts)); err != nil {
			_ = s.o.fs.Remove(target.working) // else the next save does; err is the one to tell
			problem = []byte(err.Error())
		}
	}
	problem, failed := comm.BroadcastSlices(ctx, s.c, problem, 0)
	if failed != nil {
		return failed
	}
	if err == nil && len(problem) > 0 {
		err = errors.New(string(problem))
	}
	return err
}

// missing says what it may mean that the folder of a save, which rank 0 has made, is not
// there.
func missing(err error) error {
	if errors.Is(err, iofs.ErrNotExist) {
		return fmt.Errorf("%w; all hosts need to see the folder, and no other job may save there: give each its own", err)
	}
	return err
}

// writePart writes this rank's file into the folder dir.
func (s *Store) writePart(dir string, snap snapshot) (part, error) {
	p := part{Digest: snap.state.digest()}
	if snap.plan.header == nil {
		return p, nil
	}
	name := fmt.Sprintf("rank-%05d.safetensors", s.c.WorldRank(s.c.Rank()))
	f, err := s.o.fs.Create(filepath.Join(dir, name))
	if err != nil {
		return p, missing(err)
	}
	whole, err := snap.writeTo(f, &p, s.o.blockBytes)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	p.File = &fileEntry{name, snap.plan.header.FileBytes, fmt.Sprintf("%08x", whole)}
	return p, err
}

// writeTo writes the header and the tensors, and adds these to p. whole is the checksum of what it wrote.
func (snap *snapshot) writeTo(w io.Writer, p *part, blockBytes int) (whole uint32, err error) {
	header := snap.plan.header
	begin := header.Encode()
	whole = crc32.Checksum(begin, castagnoli())
	if err := writeAll(w, begin); err != nil {
		return whole, err
	}
	rest := snap.data
	for _, t := range header.Tensors {
		piece := snap.plan.pieces[t.Name]
		from, sums := &snap.state.tensors[piece.tensor], ""
		if rows, ok := from.stored(); ok {
			if sums, err = writeStored(w, rows, piece.box.size[0], from.rowBytes(), blockBytes, &whole); err != nil {
				return whole, fmt.Errorf("tensor %q: %w", from.name, err)
			}
		} else {
			b := rest[:t.Bytes]
			rest = rest[t.Bytes:]
			if err := writeAll(w, b); err != nil {
				return whole, err
			}
			whole, sums = crc32.Update(whole, castagnoli(), b), blockSums(b, blockBytes)
		}
		p.Chunks = append(p.Chunks, partChunk{from.name, chunkEntry{At: header.DataStart + t.Offset,
			Offset: append([]int{}, piece.box.offset...), Shape: append([]int{}, piece.box.size...), CRC32C: sums}})
	}
	return whole, nil
}

// writeAll writes b in pieces, so that no call to the system lasts long.
func writeAll(w io.Writer, b []byte) error {
	for len(b) > 0 {
		n, err := w.Write(b[:min(len(b), 8<<20)])
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// index joins the parts of all ranks.
func (s *Store) index(snap snapshot, texts [][]byte) (*index, error) {
	x := &index{Format: formatName, Version: formatVersion, Step: snap.step, Ranks: s.c.Size(),
		Properties: s.o.Properties, Values: snap.values, BlockBytes: s.o.blockBytes, Files: []fileEntry{}, Tensors: describe(snap.state.tensors)}
	return x, x.join(texts, snap.state.digest(), s.c.WorldRank)
}

// describe returns the entries of tensors, without chunks.
func describe(tensors []namedTensor) []tensorEntry {
	list := make([]tensorEntry, len(tensors))
	for i, t := range tensors {
		list[i] = tensorEntry{Name: t.name, DType: safetensors.Name(t.dtype()), Shape: append([]int{}, t.shape()...), Layout: t.layout(),
			Chunks: []chunkEntry{}}
	}
	return list
}

// join adds the files and chunks of the parts of all ranks. digest is that of the State;
// worldRank says which rank wrote a part.
func (x *index) join(texts [][]byte, digest uint64, worldRank func(int) int) error {
	entries := x.byName()
	var problems []string
	for r, text := range texts {
		var p part
		if err := json.Unmarshal(text, &p); err != nil {
			return fmt.Errorf("rank %d: what it says of its file: %w", worldRank(r), err)
		}
		switch {
		case p.Err != "":
			problems = append(problems, fmt.Sprintf("rank %d: %s", worldRank(r), p.Err))
		case p.Digest != digest:
			problems = append(problems, fmt.Sprintf("rank %d has other names, types or layouts in its State than rank %d; "+
				"add the same on every rank", worldRank(r), worldRank(0)))
		case p.File != nil:
			for _, c := range p.Chunks {
				c.File = len(x.Files)
				e := entries[c.Tensor] // the digests are equal, so it is there
				e.Chunks = append(e.Chunks, c.chunkEntry)
			}
			x.Files = append(x.Files, *p.File)
		}
	}
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "; "))
	}
	for _, t := range x.Tensors {
		slices.SortFunc(t.Chunks, func(a, b chunkEntry) int { return slices.Compare(a.Offset, b.Offset) })
		held, all := 0, box{size: t.Shape}.numel()
		for _, c := range t.Chunks {
			held += c.box().numel()
		}
		if held < all {
			return fmt.Errorf("tensor %q: ranks of the communicator hold %d of its %d elements; save it by one that has all ranks of its mesh, %s",
				t.Name, held, all, t.Layout)
		}
	}
	return x.validate()
}
