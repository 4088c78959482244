//go:build !race

package dtensor_test

// most bounds the layouts that are tried for each shape.
const most = 30

// every is how many combinations of layouts on a mesh of two axes lie between two that are tried.
const every = 1

// addends is how many ones are added up: more than 256, where a sum of bfloat16 stays.
const addends = 1000
