package control

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// memfd returns an anonymous file of the given size. Nobody can change the size.
func memfd(name string, bytes int) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		return nil, fmt.Errorf("memfd_create: %w; a filter of system calls, as containers have, forbids it: allow it there", err)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := unix.Ftruncate(fd, int64(bytes)); err != nil {
		f.Close()
		return nil, fmt.Errorf("ftruncate: %w", err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		f.Close()
		return nil, fmt.Errorf("sealing: %w", err)
	}
	return f, nil
}

// checkSize returns an error unless f has the given size and cannot shrink. A process that
// touches a mapping beyond the end of its file is killed.
func checkSize(f *os.File, bytes int) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() != int64(bytes) {
		return fmt.Errorf("%s has %d bytes, not %d", f.Name(), info.Size(), bytes)
	}
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return fmt.Errorf("%s is not sealed against shrinking (seals %#x, %v)", f.Name(), seals, err)
	}
	return nil
}

// mapFile maps all of f, shared. The mapping takes memory only as it is touched.
func mapFile(f *os.File, bytes int) (unsafe.Pointer, error) {
	return mapAt(f, nil, bytes, 0)
}

// mapAt is mapFile with an address and more flags for mmap.
func mapAt(f *os.File, at unsafe.Pointer, bytes, flags int) (unsafe.Pointer, error) {
	p, err := unix.MmapPtr(int(f.Fd()), 0, at, uintptr(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE|flags)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes of %s: %w (a limit on address space, ulimit -v, must allow all ranks' arenas)", bytes, f.Name(),
			err)
	}
	return p, nil
}

// mapArenas maps the arenas at a multiple of the huge page size, so that the process can map
// the file's huge pages as huge pages.
func mapArenas(f *os.File, bytes int) (unsafe.Pointer, error) {
	room, err := unix.MmapPtr(-1, 0, nil, uintptr(bytes)+hugeBytes, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return mapFile(f, bytes)
	}
	before := -uintptr(room) & (hugeBytes - 1)
	at := unsafe.Add(room, before)
	p, err := mapAt(f, at, bytes, unix.MAP_FIXED)
	if err != nil {
		return nil, errors.Join(err, unix.MunmapPtr(room, uintptr(bytes)+hugeBytes))
	}
	// Free the rest of the room on both sides. If that fails, only addresses are lost.
	page := uintptr(os.Getpagesize())
	end := (uintptr(bytes) + page - 1) &^ (page - 1)
	if before > 0 {
		_ = unix.MunmapPtr(room, before)
	}
	if rest := uintptr(bytes) + hugeBytes - before; rest > end {
		_ = unix.MunmapPtr(unsafe.Add(at, end), rest-end)
	}
	_ = unix.Madvise(unsafe.Slice((*byte)(p), bytes), unix.MADV_HUGEPAGE)
	return p, nil
}

// goBytes is roughly the address space that a Go program reserves for itself. leastArena is the
// smallest useful arena.
const (
	goBytes    = 2 << 30
	leastArena = 64 << 20
)

// addressLimit returns how much address space this process may have.
func addressLimit() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &limit); err != nil {
		return unix.RLIM_INFINITY
	}
	return limit.Cur
}

// addressSpace returns the bytes for the arena of each of n ranks in a process whose address
// space is limited.
func addressSpace(limit uint64, n int) (int, error) {
	if limit >= addressBytes {
		return addressBytes / n, nil
	}
	each := (int(limit) - totalBytes - goBytes) / 2 / n
	if each < leastArena {
		return 0, fmt.Errorf("control: Create: of %d MiB of address space, %d ranks need %d MiB at least; "+
			"raise the limit (ulimit -v) or start fewer ranks",
			limit>>20, n, (totalBytes+goBytes+2*n*leastArena)>>20)
	}
	return each, nil
}

// mapForReading maps all of f, shared, for reading only.
func mapForReading(f *os.File, bytes int) (unsafe.Pointer, error) {
	p, err := unix.MmapPtr(int(f.Fd()), 0, nil, uintptr(bytes), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("mapping %s: %w", f.Name(), err)
	}
	return p, nil
}

// unmap ends a mapping.
func unmap(p unsafe.Pointer, bytes int) error { return unix.MunmapPtr(p, uintptr(bytes)) }

// zeroes returns zeroed memory of this process alone. It takes memory only as it is touched.
func zeroes(bytes int) (unsafe.Pointer, error) {
	const flags = unix.MAP_PRIVATE | unix.MAP_ANON | unix.MAP_NORESERVE
	return unix.MmapPtr(-1, 0, nil, uintptr(bytes), unix.PROT_READ|unix.PROT_WRITE, flags)
}

// Clock returns the time of CLOCK_MONOTONIC in nanoseconds. All processes of one host share this
// clock, and nobody sets it.
func Clock() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0
	}
	return t.Nano()
}
