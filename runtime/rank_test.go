//go:build linux

package runtime

import (
	"testing"

	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/job"
)

// TestWhenTheJobHasFailed: only then is a signal to end no chance to save.
func TestWhenTheJobHasFailed(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*control.Segment)
		want bool
	}{
		{"nothing has happened", func(*control.Segment) {}, false},
		{"a rank has finished", func(s *control.Segment) { s.Ended(1, "") }, false},
		{"a rank was interrupted sooner", func(s *control.Segment) { s.Ended(1, job.Stopped+": exit code 130") }, false},
		{"a rank has ended badly", func(s *control.Segment) { s.Ended(1, "exit code 3") }, true},
		{"a rank says so", func(s *control.Segment) { s.SetError(2, "boom") }, true},
		{"this rank says so", func(s *control.Segment) { s.SetError(0, "boom") }, true},
	} {
		s, err := control.Create(3, control.Options{ArenaBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		c.do(s)
		r := &rank{job: job.Job{Size: 3}, segment: s}
		if got := r.jobFailed(); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if (&rank{}).jobFailed() {
		t.Error("without a launcher no job has failed")
	}
}
