package simd

import "syscall"

// allowTiles asks Linux for the registers of tiles, for all threads of this process. Linux refuses if it
// does not know them, as before 5.16, or if a thread has too small a stack for its signals; Go's have 32 KiB, and a
// frame with tiles takes 11.
func allowTiles() bool {
	const (
		request  = 0x1023 // ARCH_REQ_XCOMP_PERM
		tileData = 18     // XFEATURE_XTILEDATA
	)
	_, _, errno := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, request, tileData, 0)
	return errno == 0
}
