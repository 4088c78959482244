package nn

import (
	"fmt"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// DotInteraction returns the inner product of each two of the F vectors of each sample: the
// interaction of features of DLRM (Naumov et al., arXiv 1906.00091).
//
//	x [B, F, D]   →   [B, F·(F-1)/2]
//
//	for i := range F {
//		for j := range i {
//			y[b, i·(i-1)/2+j] = Σ x[b, i, d] · x[b, j, d] over d
//		}
//	}
//
// B may be divided over the mesh, S(0); then it communicates nothing. It throws an error for
// an x that has not three dimensions.
func DotInteraction(x *dtensor.Tensor) *dtensor.Tensor {
	if x.NDim() != 3 {
		fault.Throw(fmt.Errorf("nn: DotInteraction: x is %v; give the vectors of each sample, [B, F, D]", x))
	}
	mesh, b, f := x.Mesh(), x.Dim(0), x.Dim(1)
	pairs := make([]int64, 0, f*f/2) // which of the F·F products
	for i := range f {
		for j := range i {
			pairs = append(pairs, int64(i*f+j))
		}
	}
	index := dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), pairs, len(pairs)), mesh.Every(layout.Replicate())...)
	return x.MatMul(x.Transpose(1, 2)).Reshape(b, f*f).IndexSelect(1, index)
}
