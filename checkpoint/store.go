package checkpoint

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"maps"
	"path/filepath"

	"github.com/gorun-spmd/gorun/comm"
)

// Options set up a Store. The zero value is of use.
type Options struct {
	// Keep is how many complete checkpoints stay; older ones are removed after a
	// new one is complete. 0 keeps all.
	Keep int
	// Properties are written into each index, for people and tools: the name of
	// the run, the command line. This package makes nothing of them.
	Properties map[string]string
	// Saved, if it is not nil, is called on every rank with the step of each
	// checkpoint that is complete, from a goroutine of the store's.
	Saved func(step int)

	blockBytes int        // of a checksum; 0: 1 MiB
	fs         fileSystem // nil: the operating system's
}

// validate checks o and fills in the defaults.
func (o *Options) validate() error {
	if o.Keep < 0 {
		return fmt.Errorf("option Keep is %d; give 1 or more, or 0 to keep all", o.Keep)
	}
	o.Properties = maps.Clone(o.Properties)
	if o.blockBytes == 0 {
		o.blockBytes = 1 << 20
	}
	if o.fs == nil {
		o.fs = osFS{}
	}
	return nil
}

// A Store keeps the checkpoints of one job in a folder, its root. It belongs to
// one rank; all ranks open it and make the same calls on it, in the same order.
type Store struct {
	world *comm.Comm
	c     *comm.Comm // of this store alone
	root  string
	o     Options

	host   []byte     // what this rank writes, copied; in use until the save ends
	saving chan error // receives the result of the save under way; nil: none
	plan   plan       // of the last save
}

// Open returns the store of the ranks of world in the folder root, which it makes
// if needed. On several hosts root is on a file system that all of them share.
// Only one job at a time may save there.
//
// Open is collective over world: it makes a communicator of the store's own, so
// that a save in the background does not get in the way of the program's calls.
func Open(ctx context.Context, world *comm.Comm, root string, o Options) (*Store, error) {
	err := o.validate()
	if err == nil && world.Rank() == 0 {
		err = makeRoot(o.fs, root)
	}
	if err := agree(ctx, world, err); err != nil {
		return nil, fmt.Errorf("checkpoint: Open: %w", err)
	}
	c, err := world.Split(ctx, 0, world.Rank())
	if err != nil {
		return nil, fmt.Errorf("checkpoint: Open: %w", err)
	}
	return &Store{world: world, c: c, root: root, o: o}, nil
}

// makeRoot makes the folder, durably where its parent may be read.
func makeRoot(fs fileSystem, root string) error {
	err := fs.Mkdir(root)
	if err == nil {
		err = fs.SyncDir(filepath.Dir(root))
	}
	if errors.Is(err, iofs.ErrPermission) {
		_, err = fs.List(root)
	}
	return err
}

// Save starts to write a checkpoint of a step and returns as soon as state is
// copied; the rest, all that touches a disk or another rank, goes on in the
// background. The program may then change its tensors. ctx must not end before
// the save does: that would abort the communicator.
//
// Save first waits for the save before, if it is still under way, and returns its
// error. Whatever goes wrong with this one is returned, the same on every rank,
// by the next Save or by Wait. An error does not end the store: to go on and
// try again at a later step is the caller's choice.
//
// Saving a step again replaces its checkpoint once the new one is complete.
func (s *Store) Save(ctx context.Context, step int, state *State) error {
	before := s.Wait()
	snap := s.snapshot(ctx, step, state)
	s.saving = make(chan error, 1)
	go func(result chan<- error) {
		err := s.commit(ctx, snap)
		if err == nil && s.o.Saved != nil {
			s.o.Saved(step)
		}
		result <- err
	}(s.saving)
	return before
}

// TrySave is Save if no save is under way on any rank. Else it does nothing and
// started is false, on every rank: so it never waits for a disk, and a program
// whose steps are faster than its disk saves as often as the disk allows. It
// makes one collective of one number over world.
func (s *Store) TrySave(ctx context.Context, step int, state *State) (started bool, err error) {
	busy := []int64{0}
	if s.saving != nil && len(s.saving) == 0 {
		busy[0] = 1
	}
	if err := comm.AllReduce(ctx, s.world, busy, comm.Max); err != nil {
		return false, fmt.Errorf("checkpoint: Save: %w", err)
	}
	if busy[0] != 0 {
		return false, nil
	}
	return true, s.Save(ctx, step, state)
}

// Wait returns when no save is under way, with the error of the last one, the
// same on every rank; nil if there was none or its error has been returned. A
// program that saves calls Wait before it ends.
func (s *Store) Wait() error {
	if s.saving == nil {
		return nil
	}
	err := <-s.saving
	s.saving = nil
	if err != nil {
		return fmt.Errorf("checkpoint: Save: %w", err)
	}
	return nil
}

// Resume loads the complete checkpoint of the highest step into state, which must
// be what was saved, and returns its step. ok is false, and state untouched, if
// there is none. Resume waits for a save under way, and is collective; see Load.
func (s *Store) Resume(ctx context.Context, state *State) (step int, ok bool, err error) {
	if err := s.Wait(); err != nil {
		return 0, false, err
	}
	dir, err := s.latest(ctx)
	if err != nil {
		return 0, false, fmt.Errorf("checkpoint: Resume: %w", err)
	}
	if dir == "" {
		return 0, false, nil
	}
	x, err := load(ctx, s.c, s.o.fs, dir, state, LoadOptions{})
	if err != nil {
		return 0, false, fmt.Errorf("checkpoint: Resume: %w", err)
	}
	return x.Step, true, nil
}

// latest returns the folder of the latest checkpoint as rank 0 sees it, on every
// rank; "" if there is none.
func (s *Store) latest(ctx context.Context) (string, error) {
	var e Entry
	var err error
	if s.c.Rank() == 0 {
		e, _, err = latest(s.o.fs, s.root)
	}
	if err = agree(ctx, s.c, err); err != nil {
		return "", err
	}
	dir, err := broadcast(ctx, s.c, []byte(e.Dir), 0)
	return string(dir), err
}
