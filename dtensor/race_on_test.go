//go:build race

package dtensor_test

// meshes are the mesh shapes that operators are tried on: one of an uneven number of ranks and one of two axes. The
// others go the same ways through what ranks share.
var meshes = [][]int{{3}, {2, 2}}

// narrowMeshes are those that operators on bfloat16 are tried on.
var narrowMeshes = [][]int{{2, 2}}

// typesEvery is how many operators lie between two that are tried on a type of elements that has no test of its own.
const typesEvery = 5

// most bounds the layouts that are tried for each shape: the race detector is slow.
const most = 3

// every is how many combinations of layouts on a mesh of two axes lie between two that are tried.
const every = 7

// addends is how many ones are added up: more than 256, where a sum of bfloat16 stays.
// Fewer than in the plain run: the race detector is slow.
const addends = 300
