//go:build linux

package main

import (
	"flag"
	"testing"

	"github.com/gorun-spmd/gorun/internal/programtest"
)

var (
	elasticFaults = flag.Int("elastic.faults", 3, "how many faults TestElasticRunsSurvive lets happen")
	elasticSeed   = flag.Uint64("elastic.seed", 1, "the seed of them; 0: by the time")
)

func TestElasticRunsSurvive(t *testing.T) {
	programtest.BuildFaulty(t).SurvivesFaults(t, *elasticFaults, *elasticSeed,
		"-data", words(t), "-steps", "200", "-vocab", "300", "-batch", "6", "-context", "16",
		"-width", "24", "-heads", "6", "-layers", "1", "-sample", "0", "-plot", "", "-json")
}
