package backend

import (
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/fold"
)

// An Op is the operation of a reduction. Package comm lists them.
type Op = fold.Op

// A DType is the type of one element. Package comm lists them.
type DType = dtype.DType
