//go:build invariants || race

package invariant

// Enabled says whether expensive checks run.
const Enabled = true
