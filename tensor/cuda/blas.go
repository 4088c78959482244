package cuda

import (
	"fmt"
	"math"
	"os"
	"unsafe"

	"github.com/gorun-spmd/gorun/tensor"
)

// blas is cuBLAS, for one device.
type blas struct {
	name           string
	handle         uintptr
	single, double uintptr
	half           uintptr    // 0 if this cuBLAS cannot add up bfloat16 in float32 alone
	alpha, beta    [2]float64 // of the call in progress, as float32 or float64
}

// takes reports whether b multiplies matrices of dt.
func (b *blas) takes(dt tensor.DType) bool { return dt != tensor.BFloat16 || b.half != 0 }

// blasNames are the libraries to try.
func blasNames() []string {
	if name := os.Getenv("GORUN_CUBLAS_LIB"); name != "" {
		return []string{name}
	}
	return []string{"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"}
}

// openBlas opens cuBLAS: the first of names that works with this driver. If none is found
// it returns nil, or an error if there is only one name. The caller has made the device's
// context current.
func openBlas(names []string, stream uintptr) (*blas, error) {
	if names[0] == "none" {
		return nil, nil
	}
	var failed error
	for _, name := range names {
		_, entry, err := open([]string{name}, []string{"cublasCreate_v2", "cublasSetStream_v2", "cublasSgemmStridedBatched",
			"cublasDgemmStridedBatched", "cublasGemmStridedBatchedEx", "cublasSetMathMode"})
		if err != nil {
			if len(names) == 1 {
				return nil, fmt.Errorf("cuda: GORUN_CUBLAS_LIB=%s: %w", name, err)
			}
			continue
		}
		b, err := startBlas(name, entry, stream)
		if err == nil {
			return b, nil
		}
		if failed == nil {
			failed = err
		}
	}
	return nil, failed
}

// startBlas begins to use a library.
func startBlas(name string, entry []uintptr, stream uintptr) (*blas, error) {
	b := &blas{name: name, single: entry[2], double: entry[3]}
	if code := syscall(entry[0], uintptr(unsafe.Pointer(&b.handle))); code != 0 {
		return nil, fmt.Errorf("cuda: %s: cublasCreate: status %d: it may be too new for this driver, or the device out of memory; "+
			"GORUN_CUBLAS_LIB names another, none is for products without it", name, code)
	}
	if code := syscall(entry[1], b.handle, stream); code != 0 {
		return nil, fmt.Errorf("cuda: %s: cublasSetStream: status %d", name, code)
	}
	// By default the parts of a long sum may be added up in the type of the result.
	const disallowReducedPrecision = 16 // CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
	if code := syscall(entry[5], b.handle, disallowReducedPrecision); code == 0 {
		b.half = entry[4]
	}
	return b, nil
}

// multiply computes p. cuBLAS stores matrices by columns, and so sees the transposes of
// ours: cᵀ = bᵀ·aᵀ.
func (b *blas) multiply(g *Device, dt tensor.DType, p *product) error {
	if dt == tensor.Float64 {
		b.alpha[0], b.beta[0] = p.alpha, p.beta
	} else {
		*(*float32)(unsafe.Pointer(&b.alpha)), *(*float32)(unsafe.Pointer(&b.beta)) = float32(p.alpha), float32(p.beta)
	}
	op := map[bool]uintptr{false: 0, true: 1} // CUBLAS_OP_N, CUBLAS_OP_T
	defer g.enter()()
	var code int32
	switch dt {
	case tensor.BFloat16:
		const real32F, real16BF, compute32F, algoDefault = 0, 14, 68, math.MaxUint32 // CUDA_R_…, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT: -1
		to := uintptr(real16BF)
		if p.wide {
			to = real32F
		}
		code = syscall(b.half, b.handle, op[p.transB], op[p.transA], uintptr(p.n), uintptr(p.m), uintptr(p.k), uintptr(unsafe.Pointer(&b.alpha)),
			uintptr(p.b), real16BF, uintptr(p.ldb), uintptr(p.stepB), uintptr(p.a), real16BF, uintptr(p.lda), uintptr(p.stepA),
			uintptr(unsafe.Pointer(&b.beta)),
			uintptr(p.c), to, uintptr(p.ldc), uintptr(p.stepC), uintptr(p.batch), compute32F, algoDefault)
	default:
		f := b.single
		if dt == tensor.Float64 {
			f = b.double
		}
		code = syscall(f, b.handle, op[p.transB], op[p.transA], uintptr(p.n), uintptr(p.m), uintptr(p.k), uintptr(unsafe.Pointer(&b.alpha)),
			uintptr(p.b), uintptr(p.ldb), uintptr(p.stepB), uintptr(p.a), uintptr(p.lda), uintptr(p.stepA), uintptr(unsafe.Pointer(&b.beta)),
			uintptr(p.c), uintptr(p.ldc), uintptr(p.stepC), uintptr(p.batch))
	}
	if code != 0 {
		return fmt.Errorf("cuda: rank %d: %v: %s: product of %v [%d %d] and [%d %d], batch %d: status %d", g.rank, g, b.name, dt, p.m, p.k, p.k,
			p.n, p.batch, code)
	}
	return nil
}
