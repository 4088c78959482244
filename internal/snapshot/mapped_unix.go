//go:build unix

package snapshot

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapped returns n bytes of a file from byte at on, which is where a page begins; nil if that cannot be, or m is no
// file. They stay mapped until the process ends.
func mapped(m Memory, at int64, n int) []byte {
	f, ok := m.(*os.File)
	if !ok || n == 0 {
		return nil
	}
	b, err := unix.Mmap(int(f.Fd()), at, n, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil
	}
	return b
}
