package checkpoint

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/forecast"
	"github.com/gorun-spmd/gorun/internal/job"
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
	// checkpoint that is complete, from a goroutine of the store's. gorun
	// --max-restarts learns of it without that.
	Saved func(step int)
	// ReadOnly is for a program that resumes and does not save: it may do so while
	// another job saves in the folder. Save returns an error.
	ReadOnly bool
	// Warn, if it is not nil, is called on rank 0 with what a person should know: a
	// checkpoint is damaged, and Resume took an older one. nil prints it to standard
	// error.
	Warn func(message string)

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
	ends   bool       // the end of the program waits for saves
	none   bool       // nothing is kept: the program runs for gorun plan
	plan   plan       // of the last save

	me      holder          // this process
	damaged map[string]bool // folders of checkpoints that Resume found to be
}

// Open returns the store of the ranks of world in the folder root, which it makes
// if needed. That of rank 0 counts, so a name made of the time may differ. On several hosts
// root is on a file system that all of them share.
//
// One job at a time may save there: rank 0 locks the file "lock" in root until its
// process ends, however that happens, and while another process has the lock Open
// returns an error that names it. So the next attempt of a job that failed gets it. If
// the file system has no locks, the job that opens root last has it, and the next save
// of the other is refused. A process may open root several times.
//
// Open is collective over world: it makes a communicator of the store's own, so
// that a save in the background does not get in the way of the program's calls.
//
// In a program that runs for gorun plan, which has no numbers, a store neither reads nor writes
// files: saves succeed, and there is nothing to resume.
func Open(ctx context.Context, world *comm.Comm, root string, o Options) (_ *Store, err error) {
	defer fault.Locate(&err)
	if err = o.validate(); root == "" {
		err = errors.New("the folder has no name; give one")
	}
	s := &Store{world: world, root: root, o: o, me: thisProcess(), damaged: map[string]bool{}, none: isPlanned(world)}
	if err == nil && world.Rank() == 0 && !o.ReadOnly && !s.none {
		if err = makeRoot(o.fs, root); err == nil {
			if err = s.take(ctx); readOnly(err) {
				err = nil // of use to resume; a save will say it
			}
		}
	}
	if err := agree(ctx, world, err); err != nil {
		return nil, fmt.Errorf("checkpoint: Open: %w", err)
	}
	if s.c, err = world.Split(ctx, 0, world.Rank()); err != nil {
		return nil, fmt.Errorf("checkpoint: Open: %w", err)
	}
	return s, nil
}

// isPlanned reports whether the program runs for gorun plan.
func isPlanned(c *comm.Comm) bool { return forecast.Of(c.Internals().Attr) != nil }

// makeRoot makes the folder, durably where its parent may be read.
func makeRoot(fs fileSystem, root string) error {
	err := fs.Mkdir(root)
	if err == nil {
		err = fs.SyncDir(filepath.Dir(root))
	}
	if errors.Is(err, iofs.ErrPermission) {
		if _, listed := fs.List(root); !errors.Is(listed, iofs.ErrNotExist) { // it is there
			err = listed
		}
	}
	return err
}

// Save starts to write a checkpoint of a step and returns as soon as state is
// copied; the rest, all that touches a disk or another rank, goes on in the
// background. The program may then change its tensors. ctx must not end before
// the save does: that would abort the communicator. The ctx of runtime.Main does not
// when the user stops the job.
//
// A tensor whose rows lie on a disk, as those of a table with a Store in package embedding
// may, is not copied: Save then returns when all is written.
//
// Save first waits for the save before, if it is still under way, and returns its
// error. What this rank has done wrong, such as to add a Partial tensor to state, is returned at
// once. Whatever else goes wrong with this save is returned, the same on every rank,
// by the next Save or by Wait. An error does not end the store: to go on and
// try again at a later step is the caller's choice.
//
// Saving a step again replaces its checkpoint once the new one is complete.
func (s *Store) Save(ctx context.Context, step int, state *State) (err error) {
	defer fault.Locate(&err)
	before := s.Wait()
	if s.none {
		return before
	}
	if !s.ends {
		s.ends = true
		job.AtEnd(ctx, s.Wait)
	}
	snap := s.snapshot(ctx, step, state)
	s.saving = make(chan error, 1)
	go func(result chan<- error) {
		err := s.commit(ctx, snap)
		if err == nil {
			job.Saved(ctx)
		}
		if err == nil && s.o.Saved != nil {
			s.o.Saved(step)
		}
		result <- err
	}(s.saving)
	if snap.plan.storesRows() { // its rows are read as they are now
		s.saving <- <-s.saving
		snap.free()
	}
	if snap.err != nil { // nothing is written, on any rank
		return errors.Join(before, s.Wait())
	}
	return before
}

// TrySave is Save if no save is under way on any rank. Else it does nothing and
// started is false, on every rank: so it never waits for a disk, and a program
// whose steps are faster than its disk saves as often as the disk allows. It
// makes one collective of one number over world.
func (s *Store) TrySave(ctx context.Context, step int, state *State) (started bool, err error) {
	defer fault.Locate(&err)
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
// program that saves calls Wait before it ends; where it does not, runtime.Main does.
func (s *Store) Wait() (err error) {
	defer fault.Locate(&err)
	if s.saving == nil {
		return nil
	}
	err = <-s.saving
	s.saving = nil
	if err != nil {
		return fmt.Errorf("checkpoint: Save: %w", err)
	}
	return nil
}

// Resume loads the complete checkpoint of the highest step into state, which must
// be what was saved, and returns its step. If that one is damaged it loads the one
// before, and so on, and says so; see Options.Warn. ok is false, and state untouched,
// if there is none; if none is whole that is an error. Resume waits for a save under
// way, and is collective; see Load.
func (s *Store) Resume(ctx context.Context, state *State) (step int, ok bool, err error) {
	defer fault.Locate(&err)
	if err := s.Wait(); err != nil || s.none {
		return 0, false, err
	}
	dirs, err := s.newestFirst(ctx)
	if err != nil {
		return 0, false, fmt.Errorf("checkpoint: Resume: %w", err)
	}
	var damage []error // of dirs, so far
	for _, dir := range dirs {
		x, err := load(ctx, s.c, s.o.fs, dir, state, LoadOptions{})
		switch {
		case err == nil:
			for k, err := range damage {
				s.damaged[dirs[k]] = true
				s.warn(fmt.Sprintf("checkpoint: Resume: %s is damaged, so step %d of %s is loaded: %v", dirs[k], x.Step, dir, err))
			}
			return x.Step, true, nil
		case !isDamage(err):
			return 0, false, fmt.Errorf("checkpoint: Resume: %w", err)
		}
		damage = append(damage, err)
	}
	switch len(damage) {
	case 0:
		return 0, false, nil
	case 1:
		return 0, false, fmt.Errorf("checkpoint: Resume: %w", damage[0])
	default:
		return 0, false, fmt.Errorf("checkpoint: Resume: none of the %d checkpoints in %s is whole; of the newest: %w", len(dirs), s.root,
			damage[0])
	}
}

// warn tells a person something, once.
func (s *Store) warn(message string) {
	switch {
	case s.c.Rank() != 0:
	case s.o.Warn != nil:
		s.o.Warn(message)
	default:
		fmt.Fprintln(os.Stderr, message)
	}
}

// newestFirst returns the folders of the complete checkpoints as rank 0 sees them, on
// every rank, the latest one first.
func (s *Store) newestFirst(ctx context.Context) ([]string, error) {
	var text []byte
	var err error
	if s.c.Rank() == 0 {
		var all []Entry
		all, err = generations(s.o.fs, s.root)
		dirs := make([]string, 0, len(all))
		for _, e := range slices.Backward(all) {
			dirs = append(dirs, e.Dir)
		}
		text = []byte(strings.Join(dirs, "\x00"))
	}
	if err = agree(ctx, s.c, err); err != nil {
		return nil, err
	}
	if text, err = comm.BroadcastSlices(ctx, s.c, text, 0); err != nil || len(text) == 0 {
		return nil, err
	}
	return strings.Split(string(text), "\x00"), nil
}
