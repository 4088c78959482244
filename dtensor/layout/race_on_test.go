//go:build race

package layout

// randomCases is how many cases the random tests try by default: fewer under the
// race detector, which makes them ten times slower.
const randomCases = 5_000
