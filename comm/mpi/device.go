//go:build linux && !nolibs

package mpi

import (
	"context"
	"os"
	goruntime "runtime"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/gorun-spmd/gorun/comm/backend"
)

// cudaVariable says whether the library takes addresses of CUDA devices, 1 or 0,
// instead of the library itself.
const cudaVariable = "GORUN_MPI_CUDA"

var _ backend.DeviceBackend = (*Rank)(nil)

// DeviceSupport returns why the library does not take addresses of CUDA devices, ""
// if it says that it does.
func (r *Rank) DeviceSupport() string {
	switch os.Getenv(cudaVariable) {
	case "0":
		return cudaVariable + " is 0"
	case "1":
		return ""
	}
	r.job.mu.Lock()
	defer r.job.mu.Unlock()
	return r.job.lib.cuda()
}

// cuda asks the library, which has been started. Open MPI, MPICH from 4.0 on and
// MVAPICH have MPIX_Query_cuda_support; Cray's MPICH has the other one. Both are
// extensions, see mpi-ext.h and MPICH's mpi.h.
func (l *library) cuda() string {
	const supportCUDA = 0 // MPIX_GPU_SUPPORT_CUDA
	yes := new(int32)
	if ask, ok := l.find("MPIX_Query_cuda_support"); ok {
		code, _, _ := purego.SyscallN(ask)
		*yes = int32(code)
	} else if ask, ok := l.find("MPIX_GPU_query_support"); ok {
		if code, _, _ := purego.SyscallN(ask, supportCUDA, uintptr(unsafe.Pointer(yes))); int32(code) != 0 {
			*yes = 0
		}
	}
	if *yes == 1 {
		return ""
	}
	return l.version + ", loaded as " + l.name + ", is not CUDA-aware"
}

// DoDevice carries out a call that moves elements by their addresses in a device's
// memory: by messages alone, since a library that takes such addresses there may not
// take them in its non-blocking collectives (Open MPI's manual, "Which MPI APIs do
// NOT work with CUDA-aware?").
func (r *Rank) DoDevice(ctx context.Context, call *backend.Call, copy func(dst, src backend.Buffer) error) error {
	defer goruntime.KeepAlive(call)
	if err := r.admit(ctx, call); err != nil {
		return err
	}
	switch {
	case call.Kind.PointToPoint():
		return r.sendOrRecv(ctx, call)
	case call.Kind == backend.BroadcastKind:
		return r.broadcastByMessages(ctx, call)
	}
	if err := r.deal(call); err != nil {
		return err
	}
	if own, to := r.sends[r.me], r.recvs[r.me]; own.Count > 0 && own.Ptr != to.Ptr {
		if err := copy(to, own); err != nil {
			return err
		}
	}
	return r.swap(ctx, call)
}

// broadcastByMessages sends along a binomial tree. Rank i from the root receives from i
// without its lowest bit, and sends to those that are i with one lower bit more.
func (r *Rank) broadcastByMessages(ctx context.Context, call *backend.Call) error {
	n := len(r.world)
	i, bit := (r.me+n-call.Root)%n, 1
	for bit < n && i&bit == 0 {
		bit <<= 1
	}
	if i > 0 {
		if err := r.message(true, irecv, call.Dst, (i-bit+call.Root)%n, tagPair); err != nil {
			return err
		}
		if err := r.wait(ctx, call, nil); err != nil {
			return err
		}
	}
	for bit >>= 1; bit > 0; bit >>= 1 {
		if i+bit < n {
			if err := r.message(false, isend, call.Dst, (i+bit+call.Root)%n, tagPair); err != nil {
				return err
			}
		}
	}
	return r.wait(ctx, call, nil)
}
