package train

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gorun-spmd/gorun/checkpoint"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/job"
)

// Keep says what is kept of a run, and where.
type Keep struct {
	Dir    string // folder of checkpoints; "": keep none
	Every  int    // steps between checkpoints; 0: at the end alone, and when the run is stopped
	Resume bool   // go on from the last one

	// Snapshot is how many steps lie between snapshots in memory, in a job that gorun --elastic
	// started. 0: as many as it takes that they cost 1 % of the time.
	Snapshot int

	// State is what a checkpoint has, beside the losses and the time; nil: Params and Buffers, as
	// "model." and their names, what the Optimizer remembers, as "optimizer.", and the Scaler's scale, as "scaler.".
	State *checkpoint.State
	// Settings are what a resumed run must have the same, by flag.
	Settings map[string]string

	flags bool // errors name the flags, not the fields
}

// Flags declares -checkpoint, -every, -resume and -snapshot.
func (k *Keep) Flags(f *flag.FlagSet, every int, with string) {
	k.flags = true
	f.StringVar(&k.Dir, "checkpoint", "", "keep checkpoints in `DIR`: every -every steps, at the end, and on Ctrl-C")
	f.IntVar(&k.Every, "every", every, "steps between checkpoints")
	f.BoolVar(&k.Resume, "resume", false, "go on from the last checkpoint in -checkpoint, with any "+with)
	f.IntVar(&k.Snapshot, "snapshot", 0, "under gorun --elastic: `steps` between snapshots in memory (default: so that they cost 1 %)")
}

// word returns what the user knows a setting by: its flag, or its field.
func (k *Keep) word(flag, field string) string {
	if k.flags {
		return flag
	}
	return "Keep." + field
}

// Check checks the settings.
func (k *Keep) Check() error {
	switch {
	case k.Every < 1:
		return fmt.Errorf("%s %d: give at least 1", k.word("-every", "Every"), k.Every)
	case k.Snapshot < 0:
		return fmt.Errorf("%s %d: give at least 1, or 0 for what costs 1 %% of the time", k.word("-snapshot", "Snapshot"), k.Snapshot)
	}
	return k.placed()
}

// placed returns an error if there is nowhere to resume from.
func (k *Keep) placed() error {
	if k.Resume && k.Dir == "" {
		return fmt.Errorf("%s: nothing to go on from; give the folder with %s", k.word("-resume", "Resume"), k.word("-checkpoint", "Dir"))
	}
	return nil
}

// Ready returns an error if the folder does not fit what is asked for: nothing to
// resume, or checkpoints of another run, with which those of this one would mix.
// A run that was restarted takes what there is. Run.Do checks it too, but by then
// a program has read its data.
func (k *Keep) Ready(restarted bool) error {
	if k.Every < 0 {
		return fmt.Errorf("%s %d: give 0 or more", k.word("-every", "Every"), k.Every)
	}
	if k.Dir == "" || restarted {
		return k.placed()
	}
	e, ok, err := checkpoint.Latest(k.Dir)
	dir, resume := k.word("-checkpoint", "Dir"), k.word("-resume", "Resume")
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w; give a folder of its own", dir, err)
	case k.Resume && !ok:
		return fmt.Errorf("%s: there is no checkpoint in %s; leave %[1]s out to begin", resume, k.Dir)
	case !k.Resume && ok:
		return fmt.Errorf("%s %s has a checkpoint of step %d; give %s to go on from it, or another folder to begin", dir, k.Dir, e.Step, resume)
	}
	return nil
}

// A keeper keeps checkpoints and snapshots of a run. A nil one keeps none.
type keeper struct {
	run   *Run
	world *comm.Comm
	store *checkpoint.Store // nil: no checkpoints
	state checkpoint.State
	saved int // the step that was saved last, -1: none

	snapshots *checkpoint.Snapshots // nil: none
	since     time.Time             // of the last one
	cost      time.Duration         // of it; 0: none was taken
}

// open opens the checkpoints of r, goes on from the last one if the user or a
// restart wants that, and returns the first step to make.
func (r *Run) open(ctx context.Context, world *comm.Comm, restarted bool, say func(string, ...any)) (k *keeper, first int, err error) {
	if err := r.Keep.Ready(restarted); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", r.Program, err)
	}
	elastic := job.SnapshotsOf(ctx) != nil
	if r.Keep.Dir == "" && !elastic {
		return nil, 0, nil
	}
	k = &keeper{run: r, world: world, saved: -1}
	if r.Keep.Dir != "" {
		if k.store, err = checkpoint.Open(ctx, world, r.Keep.Dir, checkpoint.Options{Keep: 2}); err != nil {
			return nil, 0, err
		}
	}
	state, ok := r.state()
	if !ok {
		return nil, 0, fault.Located(fmt.Errorf("%s: train: a checkpoint or snapshot is wanted, and nothing says what to keep; "+
			"give Params and Optimizer, or Keep.State", r.Program))
	}
	k.state = state
	settings := maps.Clone(r.Keep.Settings)
	k.state.AddValue("losses", &r.Losses)
	k.state.AddValue("elapsed", &r.Elapsed)
	k.state.AddValue("settings", &settings)
	fromDisk := k.store != nil && (r.Keep.Resume || restarted)
	if elastic {
		if first, ok, err = k.openSnapshots(ctx, world, fromDisk, say); err != nil || ok {
			return k, first, err
		}
	}
	if !fromDisk {
		return k, 0, nil
	}
	if first, ok, err = k.store.Resume(ctx, &k.state); err != nil || !ok {
		return k, 0, err
	}
	for _, name := range slices.Sorted(maps.Keys(r.Keep.Settings)) {
		if was, is := settings[name], r.Keep.Settings[name]; was != is {
			return nil, 0, fmt.Errorf("%s: -%s was %s when the checkpoint in %s was made, and is %s now; give the same to go on", r.Program, name,
				was, r.Keep.Dir, is)
		}
	}
	k.saved = first
	say("resumed at step %d from %s", first, r.Keep.Dir)
	return k, first, nil
}

// state returns the tensors that a checkpoint has; ok is false if nothing says which.
func (r *Run) state() (state checkpoint.State, ok bool) {
	switch {
	case r.Keep.State != nil:
		return *r.Keep.State, true
	case r.Params == nil || r.Optimizer == nil:
		return state, false
	}
	state.AddTensors("model.", r.Params)
	if r.Buffers != nil {
		state.AddTensors("model.", r.Buffers)
	}
	state.AddTensors("optimizer.", r.Optimizer.State())
	if r.Scaler != nil {
		state.AddTensors("scaler.", r.Scaler.State())
	}
	return state, true
}

// holds returns an error if the step that was just made has changed tensors that a checkpoint would not have.
func (l *loop) holds() error {
	if l.keeper == nil || l.Params == nil {
		return nil
	}
	mesh := l.watcher.mesh()
	if mesh == nil {
		return nil
	}
	noted, missing, of := mesh.NotedState(), 0, "" // on all meshes
	if len(noted) == l.noted {
		return nil
	}
	l.noted = len(noted)
	for _, it := range noted {
		if !l.keeper.state.Has(it.State) {
			missing, of = missing+1, it.Op
		}
	}
	if missing == 0 {
		return nil
	}
	remedy := "give Buffers, as model.Buffers() or an average's State()"
	if l.Keep.State != nil {
		remedy = "add model.Buffers() or an average's State() to Keep.State"
	}
	return fault.Located(fmt.Errorf("%s: a step changes %d tensors that are no parameters and that checkpoints would not have, of a %s; %s",
		l.Program, missing, of, remedy))
}

// SHA256 returns the SHA-256 of the tensors that a checkpoint of the run has, see
// checkpoint.SHA256: of two runs it is equal if their weights and what their optimizers remember
// are, to the bit. It is collective over world.
func (r *Run) SHA256(ctx context.Context, world *comm.Comm) (string, error) {
	state, ok := r.state()
	if !ok {
		return "", fmt.Errorf("%s: train: nothing says what the run's tensors are; give Params and Optimizer, or Keep.State", r.Program)
	}
	return checkpoint.SHA256(ctx, world, &state)
}

// step starts to save the state after a number of steps, if it is time and the save
// before has ended. A save that failed is reported; the next may do better.
func (k *keeper) step(ctx context.Context, steps int, say func(string, ...any)) error {
	if k == nil || k.store == nil || k.run.Keep.Every == 0 || steps%k.run.Keep.Every != 0 {
		return nil
	}
	started, err := k.store.TrySave(ctx, steps, &k.state)
	switch {
	case errors.Is(err, comm.ErrAborted) || errors.Is(err, comm.ErrEnded):
		return err
	case err != nil:
		say("%v; training goes on, the next checkpoint may be saved", err)
	case !started:
		say("step %d is not saved: the checkpoint before is still being written", steps)
	}
	if started {
		k.saved = steps
	}
	return nil
}

// last saves the state after a number of steps, if that has not been done, and waits
// until it is on disk. A save before it that failed is reported.
func (k *keeper) last(ctx context.Context, steps int, say func(string, ...any)) error {
	if k == nil || k.store == nil {
		return nil
	}
	err := k.store.Wait()
	if err != nil {
		say("%v; trying once more", err)
	} else if steps == k.saved {
		return nil
	}
	return errors.Join(k.store.Save(ctx, steps, &k.state), k.store.Wait())
}

// stop saves the state after a number of steps of a run that the job ends; more says that this attempt has made some of them.
func (k *keeper) stop(ctx context.Context, steps int, more bool, say func(string, ...any)) error {
	if k == nil {
		return nil
	}
	if err := k.last(ctx, steps, say); err != nil {
		return err
	}
	if k.snapshots != nil && more {
		if err := k.snapshot(ctx, steps); err != nil { // the job may go on with another number of ranks
			return err
		}
	}
	if k.store != nil {
		say("stopped after %d steps; %s goes on from %s", steps, k.run.Keep.word("-resume", "Resume"), k.run.Keep.Dir)
	}
	return nil
}

// snapshotShare is the share of the time that snapshots take at most.
const snapshotShare = 0.01

// openSnapshots opens the snapshots of an elastic job and goes on from the last one, if there
// is one and no checkpoint is of a later step. fromDisk says that one may be gone on from.
func (k *keeper) openSnapshots(ctx context.Context, world *comm.Comm, fromDisk bool, say func(string, ...any)) (first int, ok bool,
	err error) {
	if k.snapshots, err = checkpoint.OpenSnapshots(ctx, world, &k.state); err != nil {
		return 0, false, err
	}
	bytes, err := k.snapshots.Bytes(ctx)
	if err != nil {
		return 0, false, err
	}
	if damage := k.snapshots.Damage(); damage != nil {
		say("%v; going on from what was kept before", damage)
	}
	first, ok = k.snapshots.Last()
	if ok && fromDisk {
		later, err := k.laterOnDisk(ctx, world, first)
		if err != nil || later {
			return 0, false, err
		}
	}
	if !ok {
		where := "this host's memory"
		if n := k.snapshots.Hosts(); n > 1 {
			where = fmt.Sprintf("the memory of %d hosts; each keeps copies of another's", n)
		}
		say("snapshots take %.1f MB of %s", float64(bytes)/1e6, where)
		return 0, false, nil
	}
	if first, ok, err = k.snapshots.Resume(ctx); err == nil {
		say("resumed at step %d from memory", first)
	}
	return first, ok, err
}

// laterOnDisk reports whether the last checkpoint is of a later step, as rank 0 sees it.
func (k *keeper) laterOnDisk(ctx context.Context, world *comm.Comm, step int) (bool, error) {
	word := []int64{0}
	if world.Rank() == 0 {
		if e, ok, err := checkpoint.Latest(k.run.Keep.Dir); err == nil && ok && e.Step > step {
			word[0] = 1
		}
	}
	err := comm.Broadcast(ctx, world, word, 0)
	return word[0] == 1, err
}

// due reports whether a snapshot is to be taken after a number of steps.
func (k *keeper) due(steps int) bool {
	switch {
	case k == nil || k.snapshots == nil:
		return false
	case k.run.Keep.Snapshot > 0:
		return steps%k.run.Keep.Snapshot == 0
	case k.snapshots.Busy():
		return false
	}
	return time.Since(k.since) >= time.Duration(float64(k.cost)/snapshotShare)
}

// snapshot takes one after a number of steps.
func (k *keeper) snapshot(ctx context.Context, steps int) error {
	if err := comm.Barrier(ctx, k.world); err != nil { // it does not cost the time for which it waits for a late rank
		return err
	}
	start := time.Now()
	err := k.snapshots.Save(ctx, steps)
	k.since = time.Now()
	k.cost = k.since.Sub(start)
	return err
}
