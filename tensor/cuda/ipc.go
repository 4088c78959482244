package cuda

import (
	"encoding/binary"
	"unsafe"
)

// HandleBytes is the size of a CUipcMemHandle.
const HandleBytes = 64

// lazyEnablePeerAccess is CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, which the driver wants.
const lazyEnablePeerAccess = 1

// Share returns memory of the device, and the handle by which another process of this
// host maps it. The memory is an allocation of its own, because a handle stands for a
// whole allocation.
func (s *Stage) Share(bytes int) (p unsafe.Pointer, handle [HandleBytes]byte, err error) {
	if p, err = (allocator{s.g}).Alloc(bytes); err != nil {
		return nil, handle, err
	}
	defer s.g.enter()()
	if err := s.check(cuIpcGetMemHandle, uintptr(unsafe.Pointer(&handle)), uintptr(p)); err != nil {
		allocator{s.g}.Free(p, bytes)
		return nil, [HandleBytes]byte{}, err
	}
	return p, handle, nil
}

// Unshare gives memory of Share back. No other process may still map it.
func (s *Stage) Unshare(p unsafe.Pointer, bytes int) { allocator{s.g}.Free(p, bytes) }

// Map maps memory that another process shares, and returns its address here.
func (s *Stage) Map(handle [HandleBytes]byte) (p unsafe.Pointer, err error) {
	defer s.g.enter()()
	var words [HandleBytes / 8]uintptr
	for i := range words {
		words[i] = uintptr(binary.NativeEndian.Uint64(handle[8*i:]))
	}
	return p, s.open(&p, &words)
}

// Unmap ends Map.
func (s *Stage) Unmap(p unsafe.Pointer) {
	defer s.g.enter()()
	s.g.drv.call(cuIpcCloseMemHandle, uintptr(p))
}
