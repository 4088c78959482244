//go:build !race

package dtensor_test

// meshes are the mesh shapes that operators are tried on.
var meshes = [][]int{{1}, {2}, {3}, {4}, {2, 2}, {2, 1, 2}}

// narrowMeshes are those that operators on bfloat16 are tried on.
var narrowMeshes = [][]int{{3}, {2, 2}}

// typesEvery is how many operators lie between two that are tried on a type of elements that has no test of its own.
const typesEvery = 1

// most bounds the layouts that are tried for each shape.
const most = 30

// every is how many combinations of layouts on a mesh of two axes lie between two that are tried.
const every = 1

// addends is how many ones are added up: more than 256, where a sum of bfloat16 stays.
const addends = 1000
