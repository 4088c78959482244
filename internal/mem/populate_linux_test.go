package mem

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Shared memory at any page keeps its contents, and no page of it is missing then.
func TestPopulateShared(t *testing.T) {
	const page, size = 4096, collapseBytes + 5*hugeBytes + 4096 // of more than one piece
	for _, span := range [][2]int{{page, 3 * page}, {2 * page, 3 * hugeBytes}, {0, 5*hugeBytes + page}, {page, size}} {
		whole, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < size; i += 3 * page {
			whole[i] = byte(i/page) | 1
		}
		part := whole[span[0]:span[1]]
		Populate(unsafe.Pointer(&part[0]), len(part))
		resident := make([]byte, len(part)/page)
		if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&part[0])), uintptr(len(part)),
			uintptr(unsafe.Pointer(&resident[0]))); errno != 0 {
			t.Fatal(errno)
		}
		for i := range part {
			at, want := span[0]+i, byte(0)
			if at%(3*page) == 0 {
				want = byte(at/page) | 1
			}
			if part[i] != want || resident[i/page]&1 == 0 {
				t.Fatalf("bytes %d to %d: byte %d is %d, want %d; its page is resident: %v", span[0], span[1], at, part[i], want,
					resident[i/page]&1 == 1)
			}
		}
		if err := unix.Munmap(whole); err != nil {
			t.Fatal(err)
		}
	}
}
