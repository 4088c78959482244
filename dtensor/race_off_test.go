//go:build !race

package dtensor_test

// most bounds the layouts that are tried for each shape.
const most = 30
