package dtensor

// An action of a pipeline is the forward or the backward pass of one stage for one part of
// the batch.
type action struct {
	stage, part int
	back        bool
}

// schedule returns what the ranks of mesh me of meshes do in order, for stages that lie on
// the meshes in turn: first so many forward passes that the last stage has work, then one
// forward and one backward pass in turn, then the backward passes that are left. It is
// 1F1B (Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters,
// 2021), and with several stages on a mesh the interleaved schedule of that paper, which
// takes the parts in groups of as many as there are meshes: parts has to be a multiple of
// meshes then.
func schedule(me, meshes, stages, parts int) []action {
	each := stages / meshes // stages of this mesh
	total := each * parts
	nth := func(i int, back bool) action {
		if each == 1 {
			return action{me, i, back}
		}
		round, at := i/stages, i%stages
		turn := at / meshes
		if back {
			turn = each - 1 - turn
		}
		return action{turn*meshes + me, round*meshes + at%meshes, back}
	}
	ahead := meshes - 1 - me
	if each > 1 {
		ahead = 2*ahead + (each-1)*meshes
	}
	ahead = min(ahead, total)
	var list []action
	for i := range total + ahead {
		if i < total {
			list = append(list, nth(i, false))
		}
		if i >= ahead {
			list = append(list, nth(i-ahead, true))
		}
	}
	return list
}
