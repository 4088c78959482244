package commtest

import (
	"context"
	"fmt"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
)

// A Case is one thing that every backend must do. Run runs it on one rank of
// world, all ranks together, and returns what is wrong. It leaves world usable:
// what ends a communicator it does to one split from world.
type Case struct {
	Name string
	Run  func(ctx context.Context, world *comm.Comm) error
}

// A Harness runs f on n ranks of the backend under test, each with a world of
// its own, and returns what f returned on each.
type Harness func(ctx context.Context, n int, f func(ctx context.Context, world *comm.Comm) error) []error

// Sizes are the numbers of ranks that a backend is tested with.
var sizes = [...]int{1, 2, 3, 4, 7}

// TestBackend runs every Case at every number of ranks.
func TestBackend(t *testing.T, run Harness) {
	for _, n := range sizes {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			for _, c := range Cases() {
				t.Run(c.Name, func(t *testing.T) {
					for r, err := range run(t.Context(), n, c.Run) {
						if err != nil {
							t.Errorf("rank %d of %d: %v", r, n, err)
						}
					}
				})
			}
		})
	}
}

// Cases returns all cases. A program that is started as N ranks can run them
// one after the other on its one world.
func Cases() []Case {
	return append(append(collectiveCases(), groupCases()...), failureCases()...)
}
