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
		"-rows", "4000", "-batch", "64", "-steps", "150", "-dim", "4", "-json")
}
