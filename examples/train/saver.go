package main

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/checkpoint"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/runtime"
)

// A saver keeps checkpoints of a trainer. A nil one keeps none.
type saver struct {
	t     *trainer
	store *checkpoint.Store
	state checkpoint.State
	last  int // the step that was saved last, -1: none
}

// newSaver returns the saver that the command line asks for, nil if none.
func newSaver(ctx context.Context, world *comm.Comm, t *trainer) (*saver, error) {
	if t.o.checkpoint == "" {
		return nil, nil
	}
	store, err := checkpoint.Open(ctx, world, t.o.checkpoint, checkpoint.Options{Keep: 2})
	if err != nil {
		return nil, err
	}
	s := &saver{t: t, store: store, last: -1}
	s.state.AddTensors("model.", t.model.named())
	for _, o := range t.optimizer.State() {
		s.state.AddTensor(fmt.Sprintf("optimizer.%s.%d", o.Name, o.Param), o.Tensor)
	}
	s.state.AddValue("losses", &t.losses)
	s.state.AddValue("elapsed", &t.elapsed)
	return s, nil
}

// resume goes on from the last checkpoint, if the user or a restart wants that
// and there is one, and returns the first step to make.
func (s *saver) resume(ctx context.Context, restarted bool, say func(string, ...any)) (step int, err error) {
	if s == nil || !s.t.o.resume && !restarted {
		return 0, nil
	}
	step, ok, err := s.store.Resume(ctx, &s.state)
	switch {
	case err != nil:
		return 0, err
	case ok:
		s.last = step
		s.t.optimizer.SetSteps(step)
		say("resumed at step %d from %s", step, s.t.o.checkpoint)
	case s.t.o.resume && !restarted:
		return 0, fmt.Errorf("train: -resume: there is no checkpoint in %s; leave -resume out to begin", s.t.o.checkpoint)
	}
	return step, nil
}

// due reports whether a checkpoint is to be saved after so many steps.
func (s *saver) due(steps int) bool { return s != nil && steps%s.t.o.every == 0 }

// save starts to save what so many steps have made, if that has not been done.
func (s *saver) save(ctx context.Context, steps int) error {
	if s == nil || steps == s.last {
		return nil
	}
	if err := s.store.Save(ctx, steps, &s.state); err != nil {
		return err
	}
	s.last = steps
	runtime.Saved(ctx)
	return nil
}

// close waits until what was saved is on disk.
func (s *saver) close() error {
	if s == nil {
		return nil
	}
	return s.store.Wait()
}
