package runtime

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
)

// startProfile begins the profile of this process that gorun --profile asks for, and returns what ends and writes it. Ranks that
// are goroutines have one process; rank 0 profiles it.
func (r *rank) startProfile() (stop func() error, err error) {
	named := func(err error) error {
		if err != nil {
			err = fmt.Errorf("--profile: %w", err)
		}
		return err
	}
	write, err := r.beginProfile()
	return func() error { return named(write()) }, named(err)
}

// beginProfile is startProfile, whose errors name no flag.
func (r *rank) beginProfile() (stop func() error, err error) {
	dir := r.profile
	if dir == "" || r.goroutines != nil && r.job.Rank != 0 {
		return func() error { return nil }, nil
	}
	width := len(strconv.Itoa(r.job.Size - 1)) // as files of --output have it
	path := filepath.Join(dir, fmt.Sprintf("rank.%0*d", width, r.job.Rank))
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	cpu, err := os.Create(path + ".cpu")
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return nil, err
	}
	return func() error {
		pprof.StopCPUProfile()
		if err := cpu.Close(); err != nil {
			return err
		}
		memory, err := os.Create(path + ".mem")
		if err != nil {
			return err
		}
		defer memory.Close()
		if err := pprof.Lookup("allocs").WriteTo(memory, 0); err != nil {
			return fmt.Errorf("%s.mem: %w", path, err)
		}
		return nil
	}, nil
}
