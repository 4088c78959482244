package layout

import (
	"math/rand/v2"
	"testing"
)

// TestOwners compares Find with a list of who owns each index, for equal spans,
// uneven ones, gaps, single indices and nothing at all.
func TestOwners(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	cuts := map[string][]int{
		"none": nil, "empty": {0}, "one": {1}, "equal": {250, 250, 250, 250}, "chunks": {3, 3, 3, 1, 0}, "gap": {4, -3, 0, 5, -7, 1},
		"uneven": {1, 999, 0, 20, 1},
	}
	for range 50 {
		var list []int
		for range rng.IntN(9) {
			list = append(list, rng.IntN(40)-10)
		}
		cuts["random"] = list
		for name, lengths := range cuts {
			first := rng.IntN(5) - 2
			var spans [][3]int
			want := map[int]int32{}
			at := first
			for owner, n := range lengths {
				if n >= 0 {
					spans = append(spans, [3]int{at, n, owner})
				}
				for range max(n, 0) {
					want[at] = int32(owner)
					at++
				}
				at += max(-n, 0)
			}
			spans = append(spans, spans...) // twice
			rng.Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
			var o Owners
			for _, s := range spans {
				o.Add(s[0], s[1], s[2])
			}
			var indices []int64
			for index := first - 3; index < at+3; index++ {
				indices = append(indices, int64(index))
			}
			got := make([]int32, len(indices))
			o.Find(got, indices)
			for i, index := range indices {
				owner, ok := want[int(index)]
				if !ok {
					owner = -1
				}
				if got[i] != owner {
					t.Fatalf("%s %v from %d: the owner of %d is %d, want %d", name, lengths, first, index, got[i], owner)
				}
			}
		}
	}
}
