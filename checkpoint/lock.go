package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// lockName is the file in a root that rank 0 of the job that saves there has locked,
// and that says which process that is. It is never removed: the lock counts, not the
// file.
const lockName = "lock"

// maxLockBytes is more than a lock file ever has.
const maxLockBytes = 4 << 10

// errLocked is the error of fileSystem.Lock if another process has the lock.
var errLocked = errors.New("locked")

// lockPatience is how long Open waits for a lock: a job that has been killed may take
// a moment to be gone when its next attempt begins.
const lockPatience = 3 * time.Second

// A holder is a process that has locked a root.
type holder struct {
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Program string    `json:"program"`
	Since   time.Time `json:"since"`
	Process string    `json:"process"` // no other process, on any host, has the same
}

// thisProcess describes this process as a holder from now on.
func thisProcess() holder {
	h := holder{PID: os.Getpid(), Program: filepath.Base(os.Args[0]), Since: time.Now().UTC().Truncate(time.Second)}
	h.Host, _ = os.Hostname()                        // "" if there is none
	namespace, _ := os.Readlink("/proc/self/ns/pid") // containers have process ids of their own
	begin := ""
	if stat, err := os.ReadFile("/proc/self/stat"); err == nil {
		// The program's name, in brackets, may have spaces. Field 22 of all, 20 of the rest, is when the process began.
		if rest := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:])); len(rest) > 19 {
			begin = rest[19]
		}
	}
	h.Process = fmt.Sprintf("%s %s %d %s", strings.TrimSpace(thisHost()), namespace, h.PID, begin)
	return h
}

// String names the holder for a person.
func (h holder) String() string {
	return fmt.Sprintf("%s, process %d on host %s, since %s", h.Program, h.PID, h.Host, h.Since.UTC().Format("2006-01-02 15:04:05 UTC"))
}

// take locks the root for this process until it ends. Stores of one process share the
// lock. It waits a moment for another process to be gone, then refuses, naming it.
//
// Where the file system has no locks it succeeds, and the job that saved there before
// finds out by own.
func (s *Store) take(ctx context.Context) error {
	name := filepath.Join(s.root, lockName)
	for end := time.Now().Add(lockPatience); ; {
		err := s.o.fs.Lock(name)
		if err == nil {
			return s.sign(name)
		}
		if !errors.Is(err, errLocked) {
			return err
		}
		h, err := readHolder(s.o.fs, name)
		if err == nil && h.Process == s.me.Process {
			return nil
		}
		if time.Now().After(end) {
			return s.taken(h, err)
		}
		select {
		case <-ctx.Done():
			return s.taken(h, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// sign writes into the lock file who has the lock.
func (s *Store) sign(name string) error {
	text, err := json.Marshal(s.me)
	if err != nil {
		return err // of a struct of strings and numbers: never
	}
	f, err := s.o.fs.Create(name)
	if err != nil {
		return err
	}
	err = writeAll(f, append(text, '\n'))
	return errors.Join(err, f.Close())
}

// own returns an error unless this process still has the root. Another may have it if
// the file system has no locks, or lost them.
func (s *Store) own(ctx context.Context) error {
	h, err := readHolder(s.o.fs, filepath.Join(s.root, lockName))
	switch {
	case errors.Is(err, iofs.ErrNotExist):
		return s.take(ctx) // it was removed
	case err != nil || h.Process != s.me.Process:
		return s.taken(h, err)
	}
	return nil
}

// taken says who has the root, or why that is not known.
func (s *Store) taken(h holder, unknown error) error {
	who := h.String()
	if unknown != nil {
		who = "its name is not known, " + unknown.Error()
	}
	return fmt.Errorf("%s: another job saves there: %s; wait until it has ended, or give each job a folder of its own; "+
		"to load alone set Options.ReadOnly", s.root, who)
}

// readHolder reads who signed a lock file last.
func readHolder(fs fileSystem, name string) (holder, error) {
	text, err := readFile(fs, name, false, maxLockBytes)
	if err != nil {
		return holder{}, err
	}
	var h holder
	if err := json.Unmarshal(text, &h); err != nil {
		return holder{}, fmt.Errorf("%s: %w", name, err)
	}
	return h, nil
}

// readOnly reports whether an error says that this process may not write.
func readOnly(err error) bool {
	return errors.Is(err, iofs.ErrPermission) || errors.Is(err, syscall.EROFS)
}
