package loss

import "github.com/gorun-spmd/gorun/dtensor"

// LinearInBlocks returns LinearCrossEntropy in blocks of up to rows positions that hold
// up to bytes, for every type. Their classes are one tile if whole positions of them fit.
func LinearInBlocks(rows, whole, bytes int) func(hidden, weight, targets *dtensor.Tensor, o Options) *dtensor.Tensor {
	return func(hidden, weight, targets *dtensor.Tensor, o Options) *dtensor.Tensor {
		return linearCrossEntropy(hidden, weight, targets, o, limits{rows: rows, wholeRows: whole, bytes: bytes, tileBytes: bytes})
	}
}
