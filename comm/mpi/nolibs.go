//go:build !linux || nolibs

package mpi

import (
	"context"
	"errors"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/mem"
)

// Rank is one rank's end of a group; there are none in this build.
type Rank struct{}

var errNoLibs = errors.New("mpi: Open: this program was built without MPI, with the tag nolibs or for another system than Linux; " +
	"build it for Linux without the tag")

// Open returns an error.
func Open(Options) (*Rank, error) { return nil, errNoLibs }

// Library returns "".
func (r *Rank) Library() string { return "" }

// Rank returns 0.
func (r *Rank) Rank() int { return 0 }

// Size returns 1.
func (r *Rank) Size() int { return 1 }

// Memory returns nil.
func (r *Rank) Memory() mem.Allocator { return nil }

// Do returns an error.
func (r *Rank) Do(context.Context, *backend.Call) error { return errNoLibs }

// Split returns an error.
func (r *Rank) Split(context.Context, []int) (backend.Backend, error) { return nil, errNoLibs }

// Abort does nothing.
func (r *Rank) Abort(error) {}

// Failure returns nil.
func (r *Rank) Failure() error { return nil }

// Close returns nil.
func (r *Rank) Close(error) error { return nil }
