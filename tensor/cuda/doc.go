// Package cuda is a tensor.Device on an NVIDIA GPU.
//
// The CUDA driver, libcuda.so.1, is found when the program runs. The kernels are embedded
// as machine code for compute capability 8.x and 9.0, and as PTX, which the driver compiles
// for others: neither building nor running needs a CUDA toolkit or a C compiler. Matrix
// products go to cuBLAS if that is found (package libcublas), else to a kernel of this
// package.
//
//	driver, err := cuda.Load()
//	gpu, err := driver.Open(0, rank)
//	x := tensor.Zeros(gpu, tensor.Float32, 1024)
//
// # Order
//
// A device computes in one stream, in the order of the calls. A call returns before its
// work is done; a call that reads a result on the host waits. Only then is a failed
// kernel noticed: the error names the last kernels that were queued. GORUN_CUDA_SYNC=1
// waits after each kernel, so that the error names the one that failed.
//
// # Numbers
//
// Every reduction has one order, which depends on sizes alone: the same call gives
// the same bits each time. The kernels are compiled without contracting a product
// and a sum into one rounding, so that they differ from the CPU's only where an
// elementary function (exp, erf, …) or the order of a sum does. Random numbers are
// the CPU's bit by bit.
//
// # Kernels
//
// kernels/*.cu is CUDA C++. go generate makes kernels/*.ptx and the machine code in
// kernels/*.zip from it with nvcc, which make deps-ptx installs. kernels/SUMS says from
// which source each was made, and a test checks it. The tests run the same source on the
// CPU, through a fake driver (package cudatest); docs/gpu-log.md says what ran where.
//
// # Environment
//
//	GORUN_CUDA_LIB     the driver library; libcuda.so.1 without it
//	GORUN_CUBLAS_LIB   the cuBLAS library; "none" for this package's own products
//	GORUN_CUDA_SYNC=1  wait after each kernel
//	GORUN_CUDA_PTX=1   the driver compiles the PTX, whatever machine code there is
//	GORUN_CUDA_POOL=0  each tensor is an allocation of its own, for compute-sanitizer
//	GORUN_CUDA_IPC=0   ranks of a host do not read each other's device memory
//	GORUN_CUDA_FOLD=0  reductions are not folded on the device
//	GORUN_CUDA_STAGE=N collectives of less than N bytes go by way of the host
//	CUDA_VISIBLE_DEVICES, as the driver reads it, chooses and orders the GPUs
package cuda
