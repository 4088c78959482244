//go:build linux && !nolibs

package mpi

// openMPI is the ABI of Open MPI 4 and 5: handles are the addresses of
// variables. Source: ompi/include/mpi.h.in of v4.1.4 and v5.0.7.
var openMPI = abi{
	name: "Open MPI",
	symbols: [constants]string{
		commWorld:         "ompi_mpi_comm_world",
		requestNull:       "ompi_request_null",
		errorsReturn:      "ompi_mpi_errors_return",
		typeByte:          "ompi_mpi_byte",
		typeInt8:          "ompi_mpi_int8_t",
		typeInt16:         "ompi_mpi_int16_t",
		typeInt32:         "ompi_mpi_int32_t",
		typeInt64:         "ompi_mpi_int64_t",
		typeUint8:         "ompi_mpi_uint8_t",
		typeFloat:         "ompi_mpi_float",
		typeDouble:        "ompi_mpi_double",
		typeDoubleComplex: "ompi_mpi_c_double_complex",
		opSum:             "ompi_mpi_op_sum",
		opProd:            "ompi_mpi_op_prod",
		opMin:             "ompi_mpi_op_min",
		opMax:             "ompi_mpi_op_max",
		opAnd:             "ompi_mpi_op_band",
		opOr:              "ompi_mpi_op_bor",
		opNone:            "ompi_mpi_op_no_op",
		infoNull:          "ompi_mpi_info_null",
	},
	inPlace:      1,
	statusIgnore: 0,
	anySource:    -1,
	undefined:    -32766,
	eager:        4040, // btl_vader_eager_limit, in version 5 btl_sm_eager_limit, is 4096 with the headers
}
