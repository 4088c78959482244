// Package names has the names by which control segments print calls.
package names

import (
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/control"
)

// All returns the names of all kinds, operations and element types.
func All() (n control.Names) {
	for k := range comm.Kinds {
		n.Kinds = append(n.Kinds, k.String())
		if k.Rooted() {
			n.Rooted |= 1 << k
		}
	}
	for o := comm.NoOp; o <= comm.Custom; o++ {
		n.Ops = append(n.Ops, o.String())
	}
	for d := comm.DType(0); d <= comm.Bool; d++ {
		n.DTypes = append(n.DTypes, d.String())
	}
	return n
}
