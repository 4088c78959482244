package commtest

import (
	"runtime"
	"testing"
)

// TestProgressBesideWork has all ranks compute on the one processor.
func TestProgressBesideWork(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	Run(t, 3, ProgressBesideWork)
}
