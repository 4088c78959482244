//go:build race

package dtensor_test

// most bounds the layouts that are tried for each shape: the race detector is slow.
const most = 3
