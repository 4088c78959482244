//go:build linux && !nolibs

package mpi

// mpich is the ABI that MPICH, Intel MPI, Cray MPICH and MVAPICH agreed on
// (https://www.mpich.org/abi/): handles are 32-bit numbers. Source: mpi.h of
// MPICH 4.0.2.
var mpich = abi{
	name: "MPICH",
	values: [constants]uintptr{
		commWorld:         0x44000000,
		requestNull:       0x2c000000,
		errorsReturn:      0x54000001,
		typeByte:          0x4c00010d,
		typeInt8:          0x4c000137,
		typeInt16:         0x4c000238,
		typeInt32:         0x4c000439,
		typeInt64:         0x4c00083a,
		typeUint8:         0x4c00013b,
		typeFloat:         0x4c00040a,
		typeDouble:        0x4c00080b,
		typeDoubleComplex: 0x4c001041,
		opSum:             0x58000003,
		opProd:            0x58000004,
		opMin:             0x58000002,
		opMax:             0x58000001,
		opAnd:             0x58000006,
		opOr:              0x58000008,
		opNone:            0x5800000e,
		infoNull:          0x1c000000,
	},
	inPlace:      ^uintptr(0), // (void *) -1
	statusIgnore: 1,
	anySource:    -2,
	undefined:    -32766,
}
