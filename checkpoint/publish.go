package checkpoint

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// A publication is a checkpoint on its way: where it is written and what it will
// be called.
type publication struct {
	working string // root/step-N.tmp
	final   string // root/step-N
}

// prepare removes what saves that failed have left, and makes the folder for a
// new one.
func (s *Store) prepare(ctx context.Context, step int) (publication, error) {
	fs := s.o.fs
	if err := s.own(ctx); err != nil {
		return publication{}, err
	}
	names, err := fs.List(s.root)
	if err != nil {
		return publication{}, err
	}
	generation := 0
	for _, name := range names {
		base, unfinished := strings.CutSuffix(name, temporary)
		of, g, ours := parseDir(base)
		switch {
		case !ours:
		case unfinished:
			if err := fs.Remove(filepath.Join(s.root, name)); err != nil {
				return publication{}, err
			}
		case of == step:
			generation = max(generation, g+1)
		}
	}
	final := filepath.Join(s.root, dirName(step, generation))
	return publication{working: final + temporary, final: final}, fs.Mkdir(final + temporary)
}

// finish publishes the checkpoint that all ranks have written their parts of.
// To publish the index makes the names of the other files durable too.
func (s *Store) finish(ctx context.Context, target publication, snap snapshot, parts [][]byte) error {
	fs := s.o.fs
	x, err := s.index(snap, parts)
	if err != nil {
		return err
	}
	text, err := x.encode()
	if err != nil {
		return err
	}
	if len(text) > maxIndexBytes {
		return fmt.Errorf("the index has %d bytes, and may have %d at most; save fewer tensors or chunks", len(text), maxIndexBytes)
	}
	if err := s.own(ctx); err != nil {
		return err
	}
	err = publish(fs, filepath.Join(target.working, indexName), func(f file) error { return writeAll(f, text) })
	if err != nil {
		return err
	}
	if err := fs.Rename(target.working, target.final); err != nil {
		return err
	}
	if err := fs.SyncDir(s.root); err != nil {
		return err
	}
	if err := s.prune(snap.step); err != nil {
		return fmt.Errorf("step %d is saved, but an old checkpoint cannot be removed: %w", snap.step, err)
	}
	return nil
}

// prune removes the checkpoints that are not to be kept. That of the step just
// saved stays, whatever its number, and damaged ones are not counted. A folder first
// loses the name that makes it count, durably, and then its files.
func (s *Store) prune(saved int) error {
	fs := s.o.fs
	all, err := generations(fs, s.root)
	if err != nil {
		return err
	}
	kept := 0
	var doomed []string
	for i, e := range slices.Backward(all) {
		switch {
		case i+1 < len(all) && all[i+1].Step == e.Step: // a newer one of this step is there
			doomed = append(doomed, e.Dir)
		case s.o.Keep == 0 || kept < s.o.Keep || e.Step == saved:
			if !s.damaged[e.Dir] {
				kept++
			}
		default:
			doomed = append(doomed, e.Dir)
		}
	}
	for _, dir := range doomed {
		if err := fs.Rename(dir, dir+temporary); err != nil {
			return err
		}
	}
	if len(doomed) == 0 {
		return nil
	}
	if err := fs.SyncDir(s.root); err != nil {
		return err
	}
	for _, dir := range doomed {
		if err := fs.Remove(dir + temporary); err != nil {
			return err
		}
	}
	return nil
}
