//go:build linux

package doctor

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/mem"
	"github.com/gorun-spmd/gorun/launcher/machine"
	"github.com/gorun-spmd/gorun/launcher/phrase"
)

// thisCheckup returns the checkup of this machine.
func thisCheckup() *checkup {
	return &checkup{
		env:  os.Getenv,
		find: exec.LookPath,
		run: func(argv ...string) (string, error) {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
			cmd.WaitDelay = time.Second
			out, err := cmd.CombinedOutput()
			return string(out), err
		},
		needs: func(library string) ([]string, error) {
			f, err := elf.Open(library)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			return f.ImportedLibraries()
		},
	}
}

func (c *checkup) cores() finding {
	usable, all := machine.Cores(), goruntime.NumCPU()
	text := fmt.Sprintf("%d usable", usable)
	if cpus, _ := machine.UsableCPUs(); len(cpus) > 0 {
		text += fmt.Sprintf(", on CPUs %s", phrase.Ranges(cpus))
	}
	if usable < all {
		text += fmt.Sprintf("; a quota of the control group leaves %d of %d", usable, all)
	}
	return finding{Name: "cores", OK: true, Need: true, Text: text}
}

func (c *checkup) memory() finding {
	m, err := mem.ReadMachine(c.root)
	if err != nil {
		return finding{Name: "memory", Need: true, Text: err.Error()}
	}
	text := gib(m.Total)
	if m.Limit < m.Total {
		text += fmt.Sprintf(", of which the control group may use %s", gib(m.Limit))
	}
	return finding{Name: "memory", OK: true, Need: true, Text: text}
}

func gib[T int | uint64](bytes T) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) }

// sharedMemory tries the shared memory and the futex that a job needs.
func sharedMemory() finding {
	f := finding{Name: "shared memory", Need: true}
	segment, err := control.Create(1, control.Options{ArenaBytes: 1 << 20})
	if err != nil {
		f.Text = err.Error()
		return f
	}
	defer segment.Close()
	var word atomic.Uint32
	const wake = 1
	if _, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&word)), wake, 1, 0, 0, 0); errno != 0 {
		f.Text = fmt.Sprintf("futex: %v; the container's system call filter may forbid it", errno)
		return f
	}
	f.OK, f.Text = true, "works (memfd, futex)"
	return f
}

// openFileLimit returns how many ranks the limit on open files allows. It counts five files for
// each rank.
func openFileLimit() finding {
	f := finding{Name: "open files", Need: true, OK: true}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		f.Text = err.Error()
		return f
	}
	const base, each = 32, 5
	ranks := min((max(limit.Max, base)-base)/each, control.MaxRanks)
	f.Text = fmt.Sprintf("%d: enough for %d ranks", limit.Max, ranks)
	if ranks < uint64(2*machine.Cores()) {
		f.OK, f.Fix = false, "raise the limit: ulimit -n"
	}
	return f
}

// sharedFolder looks at the room that MPI libraries have for what the ranks of a host share. Open MPI 5 takes most for a rank.
func (c *checkup) sharedFolder() finding {
	const dir, each = "/dev/shm", 16 << 20
	f := finding{Name: dir}
	var s unix.Statfs_t
	if err := unix.Statfs(c.root+dir, &s); err != nil {
		f.Text, f.Fix = fmt.Sprintf("%v: MPI libraries keep there what ranks of this host share", err), "mount -t tmpfs shm "+dir
		return f
	}
	const mib = 1 << 20
	f.Text = fmt.Sprintf("%d MiB; an MPI library takes up to %d for each rank of this host", s.Blocks*uint64(s.Bsize)/mib, each/mib)
	room := s.Bavail * uint64(s.Bsize)
	if f.OK = room >= uint64(machine.Cores())*each; !f.OK {
		f.Text += fmt.Sprintf(", and %d are free", room/mib)
		f.Fix = "mount -o remount,size=1g " + dir + "; of a container: docker run --shm-size=1g"
	}
	return f
}

// temporaryFolder tries the folder in which gorun builds Go programs, and keeps the files of other launchers.
func (c *checkup) temporaryFolder() finding {
	dir := os.TempDir()
	f := finding{Name: "temp folder"}
	made, err := os.MkdirTemp(dir, "gorun-doctor-")
	if err != nil {
		f.Text, f.Fix = fmt.Sprintf("%v: gorun cannot build Go programs, nor hand jobs to other launchers", err),
			"let TMPDIR name a folder that can be written"
		return f
	}
	defer os.RemoveAll(made)
	program := filepath.Join(made, "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700); err == nil {
		_, err = c.run(program)
		if errors.Is(err, iofs.ErrPermission) {
			f.Text, f.Fix = dir+" lets no program run (noexec): gorun cannot start Go programs that it builds",
				"let TMPDIR name another folder"
			return f
		}
	}
	f.OK, f.Text = true, dir+" can be written, and runs programs"
	return f
}

func (c *checkup) goCommand() finding {
	f := finding{Name: "Go"}
	if _, err := c.find("go"); err != nil {
		f.Text, f.Fix = "no go command: gorun starts executables only", "https://go.dev/dl"
		return f
	}
	out, err := c.run("go", "version")
	f.OK, f.Text = err == nil, strings.TrimPrefix(phrase.FirstLine(out), "go version ")
	return f
}

func (c *checkup) compiler() finding {
	f := finding{Name: "C compiler"}
	name := c.env("CC")
	if name == "" {
		name = "gcc"
	}
	path, err := c.find(strings.Fields(name)[0])
	if err != nil {
		f.Text, f.Fix = "none: go test -race and GOFLAGS=-race need one", c.install("gcc libc6-dev", "gcc glibc-devel")
		return f
	}
	out, _ := c.run(path, "--version")
	f.OK, f.Text = true, phrase.FirstLine(out)
	return f
}
