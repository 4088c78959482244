//go:build !linux

package runtime

// closeOnExec has nothing to do: no launcher gives a rank descriptors here.
func closeOnExec(int) {}

// killChildren has nothing to do: no host of a job of several hosts runs this system.
func killChildren(int) {}
