//go:build race

package dtensor_test

// most bounds the layouts that are tried for each shape: the race detector is slow.
const most = 3

// every is how many combinations of layouts on a mesh of two axes lie between two that are tried.
const every = 7

// addends is how many ones are added up: more than 256, where a sum of bfloat16 stays.
// Fewer than in the plain run: the race detector is slow.
const addends = 300
