// Package names has the names by which control segments print calls.
package names

import (
	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/fold"
)

// All returns the names of all kinds, operations and element types.
func All() (n control.Names) {
	for k := range backend.Kinds {
		n.Kinds = append(n.Kinds, k.String())
		if k.Rooted() {
			n.Rooted |= 1 << k
		}
	}
	for o := fold.NoOp; o <= fold.Custom; o++ {
		n.Ops = append(n.Ops, o.String())
	}
	for d := dtype.DType(0); d <= dtype.Bool; d++ {
		n.DTypes = append(n.DTypes, d.String())
	}
	return n
}
