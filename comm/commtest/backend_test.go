package commtest

import "testing"

func TestMem(t *testing.T) { TestBackend(t, Ranks) }
