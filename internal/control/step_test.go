//go:build linux

package control

import (
	"os"
	"syscall"
	"testing"
	"time"
)

func TestASignalToARank(t *testing.T) {
	s, err := Create(2, Options{ArenaBytes: 1 << 20, MemoryBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.SetAsked(1, syscall.SIGTERM)
	if _, ok := s.Asked(0); ok {
		t.Error("rank 0 was not asked to end")
	}
	if sig, ok := s.Asked(1); !ok || sig != syscall.SIGTERM {
		t.Errorf("rank 1: %v, %v, want SIGTERM", sig, ok)
	}
}

func TestWhatARankSaysOfItsWay(t *testing.T) {
	launcher, ranks := create(t, 2)
	if _, ok := launcher.Step(1); ok || !launcher.Saved(1).IsZero() || launcher.Bytes(1) != 0 {
		t.Error("a rank that has said nothing is at some step")
	}
	before := time.Now()
	ranks[1].SetStep(1, 0)
	ranks[1].Log(1, Call{}, 1<<40)
	ranks[1].Log(1, Call{}, 1)
	ranks[1].SetSaved(1)
	watch, err := Watch(launcher.Files()[0])
	if err != nil {
		t.Fatal(err)
	}
	defer closeSegment(t, watch)
	if step, ok := watch.Step(1); step != 0 || !ok {
		t.Errorf("step %d, %v, want 0", step, ok)
	}
	if got := watch.Bytes(1); got != 1<<40+1 {
		t.Errorf("%d bytes, want %d", got, 1<<40+1)
	}
	if at := watch.Saved(1); at.Before(before) || time.Since(at) > time.Minute {
		t.Errorf("saved at %v, want just now", at)
	}
	if watch.Ranks() != 2 {
		t.Errorf("%d ranks, want 2", watch.Ranks())
	}
	world, err := ranks[0].World(4096)
	if err != nil || !watch.IsWorld(world) || watch.IsWorld(world+64) {
		t.Errorf("the world is at %d (%v)", world, err)
	}
}

func TestWatchRefuses(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/x")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := Watch(f); err == nil {
		t.Error("Watch took an empty file")
	}
	other, err := memfd("other", totalBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := Watch(other); err == nil {
		t.Error("Watch took a file without magic")
	}
	launcher, _ := create(t, 1)
	launcher.header().ranks = 1 << 60
	if _, err := Watch(launcher.Files()[0]); err == nil {
		t.Error("Watch took 2^60 ranks")
	}
	launcher.header().ranks = 1
}
