package checkpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	iofs "io/fs"
	"path/filepath"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/job"
	kept "github.com/gorun-spmd/gorun/internal/snapshot"
	"github.com/gorun-spmd/gorun/tensor"
)

// Snapshots keep a State in memory of the launcher's, which outlives the ranks: a later attempt
// of the job loads it on as many ranks or others. A snapshot is copied while
// the program waits, and counts when all ranks have copied theirs; the one before is there
// until then. It lies as a checkpoint does, each shard once, and loads as one.
//
// On several hosts each also keeps a copy of another host's parts, which is sent while the program
// goes on: what one lost host had is then there, as it was at that snapshot or the one before.
//
// All ranks make the same calls, as of a Store.
type Snapshots struct {
	c       *comm.Comm
	at      *job.Snapshots
	state   *State
	last    kept.Snapshot // the last complete one that is sound; no parts: none
	index   []byte        // of it
	damage  error         // of those after it
	plan    plan
	saved   int    // how many this attempt has
	taken   int64  // bytes that were reserved, of this rank
	staging []byte // for what lies on a device
	rooms   [2]kept.Room

	room int64      // bytes that all snapshots on this host need; only on several hosts
	away chan error // where the copy of the last one on another host ends; nil: there is none on its way
}

// onDisk is what does without memory for snapshots, as where tables lie in files because memory has no room for them.
const onDisk = "; or in place of --elastic give --max-restarts and keep checkpoints on a disk"

// snapshotBlock is how much is copied and summed at a time, so that it is in a cache.
const snapshotBlock = 256 << 10

// OpenSnapshots returns the snapshots of state, nil if the launcher gave no memory for them. It reserves
// their memory, two of each rank's part, and returns an error if that does not fit. It reads the
// last snapshot whole, and the one before if that is damaged. world is that of runtime.Main. It
// is collective.
func OpenSnapshots(ctx context.Context, world *comm.Comm, state *State) (_ *Snapshots, err error) {
	defer fault.Locate(&err)
	at := job.SnapshotsOf(ctx)
	if at == nil {
		return nil, nil
	}
	s := &Snapshots{c: world, at: at, state: state}
	now, free := state.asSaved(ctx)
	defer free()
	sorted := now.sorted()
	err = sorted.err
	if err == nil {
		s.plan, err = s.plan.next(world.WorldRank(world.Rank()), sorted.tensors)
	}
	if err == nil && !s.several() {
		err = s.reserve(s.plan.dataBytes())
	}
	if err := agree(ctx, world, err); err != nil {
		return nil, fmt.Errorf("checkpoint: OpenSnapshots: %w", err)
	}
	if s.several() {
		if err := s.reserveHost(ctx); err != nil {
			return nil, fmt.Errorf("checkpoint: OpenSnapshots: %w", err)
		}
	}
	if err := s.find(ctx); err != nil {
		return nil, fmt.Errorf("checkpoint: OpenSnapshots: %w", err)
	}
	return s, nil
}

// find finds the last snapshot that is sound.
func (s *Snapshots) find(ctx context.Context) error {
	var entries []kept.Entry
	var err error
	if s.first() {
		entries, err = kept.Entries(s.at.File)
	}
	if err := agree(ctx, s.c, err); err != nil {
		return err
	}
	lists := [][]kept.Entry{entries}
	if s.c.Rank() == 0 {
		lists = append(lists, s.idle(entries)...)
	}
	said, err := comm.AllGatherObjects(ctx, s.c, lists)
	if err != nil {
		return err
	}
	hosts := make([][]kept.Entry, s.hosts())
	for rank, lists := range said {
		hosts[s.hostOf(rank)] = append(hosts[s.hostOf(rank)], lists[0]...)
	}
	all := kept.Join(append(hosts, said[0][1:]...))
	for _, last := range all {
		s.choose(&last)
		text, err := s.read(ctx, &last)
		if err == nil {
			s.last, s.index = last, text
			return nil
		}
		if !isDamage(err) {
			return err
		}
		s.damage = errors.Join(s.damage, fmt.Errorf("the snapshot of step %d in memory: %w", last.Step, err))
	}
	if len(all) > 0 {
		s.last.Sequence = all[0].Sequence // the next one is to be after it
	}
	return nil
}

// read returns the index of a snapshot, whose parts the ranks read and check.
func (s *Snapshots) read(ctx context.Context, last *kept.Snapshot) (text []byte, err error) {
	if s.c.Rank() == 0 {
		text, err = s.indexOf(last)
	}
	if err := agree(ctx, s.c, asDamage(err)); err != nil {
		return nil, err
	}
	if text, err = comm.BroadcastSlices(ctx, s.c, text, 0); err != nil {
		return nil, err
	}
	return text, agree(ctx, s.c, s.verify(text, last))
}

// verify checks the parts of a snapshot that are this rank's to check.
func (s *Snapshots) verify(text []byte, last *kept.Snapshot) error {
	x, err := decodeIndex(text)
	if err != nil {
		return asDamage(err)
	}
	r := newReader(&memoryFS{of: s, last: last}, "memory", false, x)
	defer r.close()
	var b []byte
	for i := range x.Tensors {
		e := &x.Tensors[i]
		for j := range e.Chunks {
			if s.verifier(last, e.Chunks[j].File) != s.c.Rank() {
				continue
			}
			if b, err = r.verifyChunk(e, &e.Chunks[j], b); err != nil {
				return err
			}
		}
	}
	return nil
}

// Last returns the step of the snapshot that Resume loads; ok is false if there is none.
func (s *Snapshots) Last() (step int, ok bool) { return s.last.Step, len(s.last.Parts) > 0 }

// Damage returns what is wrong with snapshots that were made after that one; nil if there are none.
func (s *Snapshots) Damage() error { return s.damage }

// dataBytes is what this rank keeps of a state.
func (p *plan) dataBytes() int64 {
	if p.header == nil {
		return 0
	}
	return int64(p.header.FileBytes - p.header.DataStart)
}

// reserve accounts for two parts of a number of bytes.
func (s *Snapshots) reserve(bytes int64) error {
	more := 2 * (bytes - s.taken/2)
	if more <= 0 || s.at.Reserve == nil {
		return nil
	}
	if err := s.at.Reserve(int(more)); err != nil {
		return fmt.Errorf("snapshots in memory need 2 × %d bytes of rank %d: %w or fewer ranks on this host%s", bytes, s.c.Rank(), err, onDisk)
	}
	s.taken += more
	return nil
}

// Bytes returns the memory that the snapshots of all ranks take, on all hosts. It is collective.
func (s *Snapshots) Bytes(ctx context.Context) (int, error) {
	sum := []int64{2 * s.plan.dataBytes()}
	if s.hosts() > 1 {
		sum[0] *= 2
	}
	err := comm.AllReduce(ctx, s.c, sum, comm.Sum)
	return int(sum[0]), err
}

// description is what a rank writes about its part. Rank 0 alone has what follows Digest.
type description struct {
	part
	Values  map[string]json.RawMessage `json:"values,omitempty"`
	Tensors []tensorEntry              `json:"tensors,omitempty"`
}

// Save keeps the state as it is after a step. It returns when all ranks have
// copied theirs, with the same error on every rank. On several hosts it waits first until the
// one before is whole on the other hosts, see Busy, and its error may be that this has failed.
func (s *Snapshots) Save(ctx context.Context, step int) (err error) {
	defer fault.Locate(&err)
	if s.hosts() > 1 { // the slots that are written now have the one that counted until then
		if err := agree(ctx, s.c, s.arrived()); err != nil {
			return fmt.Errorf("checkpoint: the snapshot before that of step %d: %w", step, err)
		}
	}
	if s.at.Attempt > 0 && s.saved < 2 { // of an attempt before, with parts of other sizes in other places
		var err error
		if s.first() {
			err = kept.Drop(s.at.File, s.last.Sequence+1)
		}
		if err := agree(ctx, s.c, err); err != nil {
			return fmt.Errorf("checkpoint: snapshot of step %d: %w", step, err)
		}
	}
	if err := agreeOnStep(ctx, s.c, step, s.save(ctx, step)); err != nil {
		return fmt.Errorf("checkpoint: snapshot of step %d: %w", step, err)
	}
	s.last.Sequence++
	s.saved++
	job.Saved(ctx)
	if s.at.Tell != nil && s.c.Rank() == 0 {
		s.at.Tell(step)
	}
	s.send()
	return nil
}

func (s *Snapshots) save(ctx context.Context, step int) error {
	now, free := s.state.asSaved(ctx)
	defer free()
	state := now.sorted()
	if state.err != nil {
		return state.err
	}
	var err error
	if s.plan, err = s.plan.next(s.c.WorldRank(s.c.Rank()), state.tensors); err != nil {
		return err
	}
	if s.several() {
		err = s.grow(s.plan.dataBytes())
	} else {
		err = s.reserve(s.plan.dataBytes())
	}
	if err != nil {
		return err
	}
	w := kept.Begin(s.at.File, s.last.Sequence+1, s.at.Attempt, step, s.c.Rank(), s.c.Size())
	w.Through(&s.rooms[(s.last.Sequence+1)%len(s.rooms)], int(s.plan.dataBytes()))
	d := description{part: part{Digest: state.digest(), File: &fileEntry{Name: partName(s.c.Rank()), Bytes: int(s.plan.dataBytes())}}}
	if s.plan.header != nil {
		failed := dtensor.Try(ctx, s.plan.tensors[0].mesh(), func() { d.Chunks, err = s.copy(w) })
		if err = errors.Join(failed, err); err != nil {
			return err
		}
	}
	if s.c.Rank() == 0 {
		if d.Values, err = state.encodeValues(); err != nil {
			return err
		}
		d.Tensors = describe(state.tensors)
	}
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return w.Finish(text)
}

func partName(rank int) string { return fmt.Sprintf("rank-%05d", rank) }

// copy writes this rank's pieces, and returns where they lie.
func (s *Snapshots) copy(w io.Writer) (chunks []partChunk, err error) {
	for entry, data := range s.plan.data() {
		piece := s.plan.pieces[entry.Name]
		from, sums := &s.plan.tensors[piece.tensor], ""
		if rows, ok := from.stored(); ok {
			if sums, err = writeStored(w, rows, piece.box.size[0], from.rowBytes(), snapshotBlock, new(uint32)); err != nil {
				return nil, fmt.Errorf("tensor %q: %w", from.name, err)
			}
		} else if sums, err = s.copyTensor(w, data, entry.Bytes); err != nil {
			return nil, err
		}
		chunks = append(chunks, partChunk{from.name, chunkEntry{At: entry.Offset,
			Offset: append([]int{}, piece.box.offset...), Shape: append([]int{}, piece.box.size...), CRC32C: sums}})
	}
	return chunks, nil
}

// copyTensor writes a tensor of size bytes, and returns the checksums of its blocks.
func (s *Snapshots) copyTensor(w io.Writer, data *tensor.Tensor, size int) (sums string, err error) {
	b, ok := hostBytes(data)
	if !ok {
		s.staging = resize(s.staging, size)
		b = s.staging
		data.Device().ToHost(unsafe.Pointer(&b[0]), data.Ptr(), size)
	}
	var text []byte
	for at := 0; at < len(b); at += snapshotBlock {
		block := b[at:min(at+snapshotBlock, len(b))]
		if _, err := w.Write(block); err != nil { // first: its copy prefetches
			return "", err
		}
		text = fmt.Appendf(text, "%08x", crc32.Checksum(block, castagnoli()))
	}
	return string(text), nil
}

// Resume loads the last snapshot into the state, on any number of ranks, and returns its step;
// ok is false if there is none. It is called before the first Save.
func (s *Snapshots) Resume(ctx context.Context) (step int, ok bool, err error) {
	defer fault.Locate(&err)
	if len(s.last.Parts) == 0 {
		return 0, false, nil
	}
	fs := &memoryFS{of: s, last: &s.last, index: s.index}
	if _, err := load(ctx, s.c, fs, "memory", s.state, LoadOptions{}); err != nil {
		return 0, false, fmt.Errorf("checkpoint: the snapshot in memory: %w", err)
	}
	return s.last.Step, true, nil
}

// indexOf makes the index of a snapshot of what its ranks wrote about their parts.
func (s *Snapshots) indexOf(last *kept.Snapshot) ([]byte, error) {
	var texts [][]byte
	for i := range last.Parts {
		text, err := last.Parts[i].Description(s.memory(&last.Parts[i]))
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	var first description
	if err := json.Unmarshal(texts[0], &first); err != nil {
		return nil, err
	}
	x := &index{Format: formatName, Version: formatVersion, Step: last.Step, Ranks: len(texts), Values: first.Values,
		BlockBytes: snapshotBlock, Files: []fileEntry{}, Tensors: first.Tensors}
	if err := x.join(texts, first.Digest, func(r int) int { return r }); err != nil {
		return nil, err
	}
	return x.encode()
}

// memoryFS shows the last snapshot as the folder of a checkpoint, to load.
type memoryFS struct {
	fileSystem // of what loading does not call
	of         *Snapshots
	last       *kept.Snapshot
	index      []byte // on rank 0
}

func (f *memoryFS) List(string) ([]string, error) { return []string{indexName}, nil }

func (f *memoryFS) Open(name string, _ bool) (file, error) {
	base := filepath.Base(name)
	if base == indexName {
		return memoryFile{bytes.NewReader(f.index), len(f.index)}, nil
	}
	for r := range f.last.Parts {
		if p := &f.last.Parts[r]; base == partName(r) {
			return memoryFile{io.NewSectionReader(f.of.memory(p), p.At, p.Bytes), int(p.Bytes)}, nil
		}
	}
	return nil, &iofs.PathError{Op: "open", Path: name, Err: iofs.ErrNotExist}
}

// A memoryFile is a file of a snapshot, to read.
type memoryFile struct {
	io.ReaderAt
	bytes int
}

func (f memoryFile) Size() (int, error)        { return f.bytes, nil }
func (f memoryFile) Close() error              { return nil }
func (f memoryFile) Sync() error               { return nil }
func (f memoryFile) Write([]byte) (int, error) { return 0, iofs.ErrInvalid }
