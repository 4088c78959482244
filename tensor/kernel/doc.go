// Package kernel defines what package tensor asks of a device: the operators, each a row of a
// table, the kernels, their arguments, and the device's memory.
//
// The tables alone say what an operator is: its name, the types it takes, the arguments that
// its gradient reads, its law for partial sums, and its definition. The names in the CUDA
// sources are generated from them:
//
//	go generate ./tensor/kernel ./tensor/cuda
package kernel

//go:generate go test -run TestGenerated -rewrite

import "fmt"

// allOps returns the operators of a table of the given length.
func allOps[Op ~uint8](length int) []Op {
	list := make([]Op, length)
	for i := range list {
		list[i] = Op(i)
	}
	return list
}

// unknown is the name of an operator that has no row.
func unknown[Op ~uint8](op Op) string { return fmt.Sprintf("operator %d", op) }

// Missing panics, because device has no kernel for op.
func Missing(device string, op fmt.Stringer) {
	panic("tensor: " + device + " has no kernel for " + op.String())
}
