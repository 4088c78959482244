package cuda

import (
	"fmt"
	"os"
	"unsafe"

	"github.com/gorun-spmd/gorun/tensor"
)

// blas is cuBLAS, for one device.
type blas struct {
	name           string
	handle         uintptr
	single, double uintptr
	alpha, beta    [2]float64 // of the call in progress, as float32 or float64
}

// blasNames are the libraries to try.
func blasNames() []string {
	if name := os.Getenv("GORUN_CUBLAS_LIB"); name != "" {
		return []string{name}
	}
	return []string{"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"}
}

// openBlas finds cuBLAS. It returns nil if there is none, unless one was named. The
// context of the device is current.
func openBlas(stream uintptr) (*blas, error) {
	names := blasNames()
	if names[0] == "none" {
		return nil, nil
	}
	name, entry, err := open(names, []string{"cublasCreate_v2", "cublasSetStream_v2", "cublasSgemmStridedBatched", "cublasDgemmStridedBatched"})
	if err != nil {
		if len(names) == 1 {
			return nil, fmt.Errorf("cuda: GORUN_CUBLAS_LIB=%s: %w", names[0], err)
		}
		return nil, nil
	}
	b := &blas{name: name, single: entry[2], double: entry[3]}
	if code := syscall(entry[0], uintptr(unsafe.Pointer(&b.handle))); code != 0 {
		return nil, fmt.Errorf("cuda: %s: cublasCreate: status %d", name, code)
	}
	if code := syscall(entry[1], b.handle, stream); code != 0 {
		return nil, fmt.Errorf("cuda: %s: cublasSetStream: status %d", name, code)
	}
	return b, nil
}

// multiply carries out p. cuBLAS has its matrices by columns, and so sees the
// transposes of ours: cᵀ = bᵀ·aᵀ.
func (b *blas) multiply(g *Device, dt tensor.DType, p *product) error {
	f := b.single
	if dt == tensor.Float64 {
		f = b.double
		b.alpha[0], b.beta[0] = p.alpha, p.beta
	} else {
		*(*float32)(unsafe.Pointer(&b.alpha)), *(*float32)(unsafe.Pointer(&b.beta)) = float32(p.alpha), float32(p.beta)
	}
	op := map[bool]uintptr{false: 0, true: 1} // CUBLAS_OP_N, CUBLAS_OP_T
	defer g.enter()()
	code := syscall(f, b.handle, op[p.transB], op[p.transA], uintptr(p.n), uintptr(p.m), uintptr(p.k), uintptr(unsafe.Pointer(&b.alpha)),
		uintptr(p.b), uintptr(p.ldb), uintptr(p.stepB), uintptr(p.a), uintptr(p.lda), uintptr(p.stepA), uintptr(unsafe.Pointer(&b.beta)),
		uintptr(p.c), uintptr(p.ldc), uintptr(p.stepC), uintptr(p.batch))
	if code != 0 {
		return fmt.Errorf("cuda: rank %d: %v: %s: product of [%d %d] and [%d %d], batch %d: status %d", g.rank, g, b.name, p.m, p.k, p.k, p.n, p.batch, code)
	}
	return nil
}
