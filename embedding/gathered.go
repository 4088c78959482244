package embedding

import (
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// gathered returns the batch with all samples on each rank, j itself if each has them. It
// makes an all-gather of counts, one of lengths, one of ids, and one of weights if there are any.
func (j *Jagged) gathered() *Jagged {
	var sharded uint
	for axis, place := range j.batch.Placements() {
		if place.IsShard() && j.mesh.Axes()[axis].Size > 1 {
			sharded |= 1 << axis
		}
	}
	group := groupOver(j.mesh, sharded) // its ranks are in the order of their samples
	if group == nil {
		return j
	}
	features := len(j.features)
	facts := 1 + features // how many samples a rank has, and which features have weights
	own := make([]int64, facts)
	own[0] = int64(j.samples)
	for f, its := range j.weighted {
		if its {
			own[1+f] = 1
		}
	}
	var samples []int64
	weighted := make([]bool, features)
	for its := range slices.Chunk(gatherAll(j.mesh, group, own, slices.Repeat([]int{facts}, group.Size()), "samples of a batch"), facts) {
		samples = append(samples, its[0])
		for f := range weighted {
			weighted[f] = weighted[f] || its[1+f] > 0
		}
	}
	mine := make([]int64, len(j.lengths))
	for i, n := range j.lengths {
		mine[i] = int64(n)
	}
	counts := make([]int, group.Size())
	for r, n := range samples {
		counts[r] = features * int(n)
	}
	parts := gatherAll(j.mesh, group, mine, counts, "lengths of a batch") // by rank, feature and sample
	ids := make([]int, group.Size())
	at := 0
	for r, n := range counts {
		for _, length := range parts[at : at+n] {
			ids[r] += int(length)
		}
		at += n
	}
	order, lengths := j.order(samples, parts)
	allIDs := pick(gatherAll(j.mesh, group, tensor.ToSlice[int64](j.ids), ids, "ids of a batch"), order)
	var weights []float32
	if slices.Contains(weighted, true) {
		its := slices.Repeat([]float32{1}, j.ids.Numel()) // a rank without ids may have passed none
		if j.weights != nil {
			its = tensor.ToSlice[float32](j.weights)
		}
		weights = pick(gatherAll(j.mesh, group, its, ids, "weights of a batch"), order)
	}
	all, err := NewJagged(j.mesh, j.features, j.Samples(), lengths, allIDs, weights)
	if err != nil {
		fault.Throw(err)
	}
	all.weighted, all.positions = weighted, j.positions
	return all
}

// order returns the lengths of all samples, feature by feature, and in this order where
// the ids begin and end that lie rank by rank. parts are the lengths by rank, feature and sample.
func (j *Jagged) order(samples, parts []int64) (order [][2]int, lengths []int) {
	features := len(j.features)
	perRank := make([][][2]int, features) // by feature and rank
	lengthsOf := make([][]int, features)
	at, id := 0, 0
	for _, n := range samples {
		for f := range features {
			first := id
			for _, length := range parts[at : at+int(n)] {
				lengthsOf[f] = append(lengthsOf[f], int(length))
				id += int(length)
			}
			perRank[f] = append(perRank[f], [2]int{first, id})
			at += int(n)
		}
	}
	return slices.Concat(perRank...), slices.Concat(lengthsOf...)
}

// pick returns the parts of x that order names, one after another.
func pick[T any](x []T, order [][2]int) []T {
	y := make([]T, 0, len(x))
	for _, part := range order {
		y = append(y, x[part[0]:part[1]]...)
	}
	return y
}

// gatherAll returns the elements of all ranks of a group, of which counts says how many each has.
func gatherAll[T int64 | float32](m *dtensor.Mesh, group *comm.Comm, mine []T, counts []int, cause string) []T {
	all := make([]T, ints.Sum(counts))
	m.Do(group, comm.Call{Kind: comm.AllGatherVKind, Dst: comm.Of(all), Src: comm.Of(mine), DstCounts: counts, Cause: cause})
	return all
}
