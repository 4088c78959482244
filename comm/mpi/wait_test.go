//go:build linux && !nolibs

package mpi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A rank spins where the ranks around it have a core each.
func TestPatience(t *testing.T) {
	at := func(host uint64, cpus ...int) location {
		p := location{host: host}
		for _, c := range cpus {
			p.cpus.Set(c)
		}
		return p
	}
	for _, test := range []struct {
		name string
		all  []location // the first is this rank's
		want int
	}{
		{"alone", []location{at(1, 0)}, spinning},
		{"bound to a core each", []location{at(1, 0), at(1, 1)}, spinning},
		{"bound to one core", []location{at(1, 0), at(1, 0)}, 1},
		{"two on two cores", []location{at(1, 0, 1), at(1, 0, 1)}, spinning},
		{"three on two cores", []location{at(1, 0, 1), at(1, 0, 1), at(1, 0, 1)}, 1},
		{"another host", []location{at(1, 0), at(2, 0), at(2, 0)}, spinning},
		{"a neighbour's neighbour", []location{at(1, 0, 1), at(1, 1, 2), at(1, 2), at(1, 2)}, 1},
		{"enough in all", []location{at(1, 0, 1), at(1, 1, 2), at(1, 2)}, spinning},
		{"busy elsewhere", []location{at(1, 0), at(1, 1), at(1, 1)}, spinning},
		{"unknown", []location{{host: 1}, {host: 1}}, 1},
	} {
		if got := patience(test.all[0], test.all, math.MaxInt); got != test.want {
			t.Errorf("%s: got %d, want %d", test.name, got, test.want)
		}
	}
	if two := []location{at(1, 0, 1), at(1, 0, 1)}; patience(two[0], two, 1) != 1 || patience(two[0], two, 2) != spinning {
		t.Error("two ranks on two cores spin if their control group allows two cores, and only then")
	}
	var own unix.CPUSet
	if err := unix.SchedGetaffinity(0, &own); err != nil {
		t.Fatal(err)
	}
	if p := newLocation("here"); p.cpus != own || p.host == newLocation("there").host {
		t.Errorf("this process is at %+v", p)
	}
}

// TestYields has the library say whether it yields, which Open MPI does if told to.
func TestYields(t *testing.T) {
	eachLauncher(t, func(t *testing.T, l launcher) {
		for _, told := range []bool{false, true} {
			want := told && strings.HasPrefix(l.library, "Open MPI")
			setting := map[bool]string{false: "0", true: "1"}[told]
			out, err := l.run(t, 1, "yields", "MPI_TEST_SIZE=1", "OMPI_MCA_mpi_yield_when_idle="+setting)
			if err != nil || !strings.Contains(out, fmt.Sprintf("yields: %v\n", want)) {
				t.Errorf("told %v: want %v; it said (%v)\n%s", told, want, err, out)
			}
		}
	})
}

func sayYields(_ context.Context, world *Rank) error {
	fmt.Printf("yields: %v\n", world.job.yields)
	return nil
}

func TestTooLate(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	err := (&Rank{}).tooLate(ctx, false)
	if want := "context deadline exceeded; GORUN_DEBUG=1 has the error name the ranks"; !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if err := (&Rank{}).tooLate(ctx, false); err != context.Canceled {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
