// Package invariant switches expensive checks on: under the race detector and
// with the build tag invariants.
//
//	if invariant.Enabled {
//		check()
//	}
//
// Enabled is a constant, so that the check costs nothing where it is off.
package invariant
