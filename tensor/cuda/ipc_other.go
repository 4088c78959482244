//go:build !amd64

package cuda

import "unsafe"

// open calls cuIpcOpenMemHandle(CUdeviceptr *, CUipcMemHandle, unsigned). In the
// convention of arm64 a struct of this size is passed by its address.
func (s *Stage) open(p *unsafe.Pointer, handle *[HandleBytes / 8]uintptr) error {
	return s.check(cuIpcOpenMemHandle, uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(handle)), lazyEnablePeerAccess)
}
