package checkpoint

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
)

// A piece is a box of a tensor and the rank that writes it.
type piece struct {
	tensor int // index in the State
	writer int // world rank
	box    box
}

// assign says which rank writes which boxes. Every element of every tensor is
// written once. A box that several ranks hold goes to the one of them that has
// the fewest bytes to write so far, the lowest of equals. It is computed from
// global facts, so every rank gets the same list, except for the shards of a
// LocalShards: each has one holder, and only those of rank me are listed.
func assign(tensors []namedTensor, me int) []piece {
	var list []piece
	load := map[int]int{} // bytes by world rank
	for i, t := range tensors {
		if t.shards != nil {
			for _, b := range t.boxes() {
				list = append(list, piece{i, me, b})
			}
			continue
		}
		for _, s := range shards(t.tensor) {
			best := slices.MinFunc(s.holders, func(a, b int) int { return cmp.Or(cmp.Compare(load[a], load[b]), cmp.Compare(a, b)) })
			load[best] += s.box.numel() * t.dtype().Size()
			list = append(list, piece{i, best, s.box})
		}
	}
	return list
}

// A shard is a box of a tensor with the world ranks that hold it.
type shard struct {
	box     box
	holders []int
}

// shards returns the distinct shards of t that are not empty, in the order of
// the first position that holds each.
func shards(t *dtensor.Tensor) []shard {
	var list []shard
	index := map[string]int{}
	lay := t.Layout()
	for position, rank := range t.Mesh().Ranks() {
		coord := lay.Axes().Coord(position)
		b := box{lay.Offset(coord), lay.LocalShape(coord)}
		if b.numel() == 0 {
			continue
		}
		key := fmt.Sprint(b.offset, b.size)
		i, ok := index[key]
		if !ok {
			i = len(list)
			index[key] = i
			list = append(list, shard{box: b})
		}
		list[i].holders = append(list[i].holders, rank)
	}
	return list
}
