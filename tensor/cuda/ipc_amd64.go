package cuda

import "unsafe"

// open calls cuIpcOpenMemHandle(CUdeviceptr *, CUipcMemHandle, unsigned). In the System
// V convention the struct, which is passed by value, lies on the stack: after the six
// integer registers, of which the call uses two.
func (s *Stage) open(p *unsafe.Pointer, handle *[HandleBytes / 8]uintptr) error {
	h := handle
	return s.check(cuIpcOpenMemHandle, uintptr(unsafe.Pointer(p)), lazyEnablePeerAccess, 0, 0, 0, 0,
		h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7])
}
