//go:build race

package testenv

// Race says whether the race detector is on. Programs take ten times as long under it, and a sync.Pool
// drops what it is given at random.
const Race = true
