//go:build !linux

package runtime

import "time"

// closeOnExec has nothing to do: no launcher gives a rank descriptors here.
func closeOnExec(int) {}

// threadTime and processTime know nothing: gorun plan runs on Linux.
func threadTime() time.Duration  { return 0 }
func processTime() time.Duration { return 0 }

// killChildren has nothing to do: no host of a job of several hosts runs this system.
func killChildren(int) {}
