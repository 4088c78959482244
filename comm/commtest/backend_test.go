package commtest

import "testing"

func TestMem(t *testing.T) { TestBackend(t, Ranks) }

func TestMemAllocations(t *testing.T) { TestAllocations(t, Ranks) }
