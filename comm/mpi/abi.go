//go:build linux && !nolibs

package mpi

import (
	"fmt"
	"strings"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/fold"
)

// A constant is something that a C program takes from mpi.h as a handle.
type constant uint8

const (
	commWorld constant = iota
	requestNull
	errorsReturn
	typeByte
	typeInt8
	typeInt16
	typeInt32
	typeInt64
	typeUint8
	typeFloat
	typeDouble
	typeDoubleComplex
	opSum
	opProd
	opMin
	opMax
	opAnd
	opOr
	opNone
	infoNull
	constants
)

// An abi is what differs between the mpi.h of two families of libraries.
type abi struct {
	name         string
	values       [constants]uintptr // the handles, where they are numbers
	symbols      [constants]string  // the variables whose addresses they are, elsewhere
	inPlace      uintptr
	statusIgnore uintptr
	anySource    int32
	undefined    int32
	eager        int // bytes of the longest message that goes at once to a rank of the same host; 0: long ones do
}

// chooseABI returns the abi of the library that calls itself version, the
// answer of MPI_Get_library_version.
func chooseABI(version string) (*abi, error) {
	for _, family := range []struct {
		abi   *abi
		marks []string
	}{
		{&openMPI, []string{"Open MPI", "Spectrum MPI"}},
		{&mpich, []string{"MPICH", "Intel(R) MPI", "MVAPICH", "ParaStation"}},
	} {
		for _, mark := range family.marks {
			if strings.Contains(version, mark) {
				return family.abi, nil
			}
		}
	}
	return nil, fmt.Errorf("its version is %q, neither Open MPI's nor MPICH's; install openmpi-bin or mpich and name its library in %s",
		firstLine(version), libraryVariable)
}

// firstLine returns version up to its first line break, without blanks at its ends.
func firstLine(version string) string {
	line, _, _ := strings.Cut(version, "\n")
	return strings.TrimSpace(line)
}

// typeOf returns the MPI type that moves elements of type d. It has their size; types that
// are folded here may be another type to MPI.
func typeOf(d backend.DType) constant {
	switch d {
	case dtype.Float32:
		return typeFloat
	case dtype.Float64:
		return typeDouble
	case dtype.Int16, dtype.Uint16, dtype.Float16, dtype.BFloat16:
		return typeInt16
	case dtype.Int32, dtype.Uint32:
		return typeInt32
	case dtype.Int64, dtype.Uint64, dtype.Complex64:
		return typeInt64
	case dtype.Int8:
		return typeInt8
	case dtype.Complex128:
		return typeDoubleComplex
	}
	return typeUint8
}

// nativeOp returns the MPI operation that is op on elements of type d; ok is
// false where the two differ, as on NaN, or there is none.
func nativeOp(op backend.Op, d backend.DType) (c constant, ok bool) {
	switch op {
	case fold.Sum, fold.Avg:
		c = opSum
	case fold.Prod:
		c = opProd
	case fold.Min:
		c = opMin
	case fold.Max:
		c = opMax
	case fold.And:
		c = opAnd
	case fold.Or:
		c = opOr
	default:
		return 0, false
	}
	switch d {
	case dtype.Float16, dtype.BFloat16, dtype.Uint16, dtype.Uint32, dtype.Uint64, dtype.Complex64, dtype.Complex128:
		return 0, false
	case dtype.Int8, dtype.Int16: // Open MPI's AVX code saturates their sums (v4.1.4, ompi/mca/op/avx)
		return c, c != opSum
	case dtype.Uint8: // there too, and MPICH compares them with signs (v4.0.2)
		return c, c == opAnd || c == opOr
	case dtype.Float32, dtype.Float64:
		return c, c == opSum || c == opProd
	}
	return c, true
}
