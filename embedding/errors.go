package embedding

import (
	"fmt"

	"github.com/gorun-spmd/gorun/internal/fault"
)

// An Error says that a table, its ids and its options do not fit together. It
// is computed from global facts, so every rank throws the same one at the same
// call and the group stays usable.
type Error struct {
	Op     string // "Lookup"
	Detail string // what differs, with names and numbers, and what to do
}

// Error gives all of it in one line.
func (e *Error) Error() string { return "embedding: " + e.Op + ": " + e.Detail }

// refuse throws an *Error.
func refuse(op, format string, args ...any) {
	fault.Throw(&Error{Op: op, Detail: fmt.Sprintf(format, args...)})
}

// A StoreError says that the disk of one rank has failed: it names the table, the file and, where it
// can, the row. Every rank of the mesh throws the same one, and the group stays usable.
type StoreError struct {
	Op     string
	Rank   int // in the world
	Detail string
}

// Error gives all of it in one line.
func (e *StoreError) Error() string {
	return fmt.Sprintf("embedding: %s: rank %d: %s", e.Op, e.Rank, e.Detail)
}

// An IDError says that an id names no row of its table. Every rank of the mesh
// throws the same one, whichever rank holds the id, and the group stays usable.
type IDError struct {
	Op       string
	Table    string // its name, or what it is
	ID       int64
	Position []int // of the id in the global tensor of ids
	Rows     int   // V
}

// Error gives all of it in one line.
func (e *IDError) Error() string {
	return fmt.Sprintf("embedding: %s: id %d at %v is out of range for %s of %d rows; ids are from 0 to %d",
		e.Op, e.ID, e.Position, e.Table, e.Rows, e.Rows-1)
}
