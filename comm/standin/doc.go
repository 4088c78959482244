// Package standin is the backend of a job of which only some ranks run, as goroutines: the others
// are stood in for. It shows what a job of thousands of ranks would do (see gorun plan).
//
//	ends := standin.Open(standin.Config{Size: 4096, Run: []int{0, 1, 4095}, For: func(rank int) int { return min(rank, 1) }})
//
// The ranks that run meet in each call as those of package comm/mem do, and compare fingerprints:
// an error names two ranks and their lines. A rank that does not run agrees with all calls. What it
// would send is what the rank that stands in for it sends; what goes to it is lost.
//
// Elements move where they are real (see Rank.Use): the ids of a batch, and the numbers by which
// a program tells ranks when to stop. Where a call's elements are not there, as on a device without
// numbers, the call costs nothing however many they are.
//
// What a rank that does not run alone can know is refused, with an error that says to have it run:
// the elements of a root, and its place in a Split that does not go by what all ranks know (see
// comm.Internals.Split). There are no windows.
package standin
