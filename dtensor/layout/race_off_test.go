//go:build !race

package layout

// randomCases is how many cases the random tests try by default.
const randomCases = 100_000
