package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	iofs "io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/gorun-spmd/gorun/internal/fault"
)

// temporary ends the name of what is not complete, or being removed.
const temporary = ".tmp"

// An Entry is a complete checkpoint.
type Entry struct {
	Step int
	Dir  string // its folder

	generation int // of several of one step, higher is newer
}

// dirName is the name of a checkpoint's folder: step-000123, and step-000123.1
// if the step is saved again while step-000123 is there.
func dirName(step, generation int) string {
	name := fmt.Sprintf("step-%06d", step)
	if generation > 0 {
		name += "." + strconv.Itoa(generation)
	}
	return name
}

// parseDir is the inverse of dirName; ok is false for any other name.
func parseDir(name string) (step, generation int, ok bool) {
	digits, rest, again := strings.Cut(strings.TrimPrefix(name, "step-"), ".")
	step, err := strconv.Atoi(digits)
	if again && err == nil {
		generation, err = strconv.Atoi(rest)
	}
	return step, generation, err == nil && step >= 0 && name == dirName(step, generation)
}

// List returns the complete checkpoints in root in ascending order of their
// steps; none, if there is no such folder. It does not look into them: see Verify.
func List(root string) (_ []Entry, err error) {
	defer fault.Locate(&err)
	all, err := list(osFS{}, root)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: List: %w", err)
	}
	return all, nil
}

// Latest returns the complete checkpoint of the highest step in root; ok is false
// if there is none. Ranks that must all see the same use Store.Resume.
func Latest(root string) (e Entry, ok bool, err error) {
	defer fault.Locate(&err)
	if e, ok, err = latest(osFS{}, root); err != nil {
		err = fmt.Errorf("checkpoint: Latest: %w", err)
	}
	return e, ok, err
}

func latest(fs fileSystem, root string) (e Entry, ok bool, err error) {
	all, err := list(fs, root)
	if err != nil || len(all) == 0 {
		return Entry{}, false, err
	}
	return all[len(all)-1], true, nil
}

func list(fs fileSystem, root string) ([]Entry, error) {
	all, err := generations(fs, root)
	if err != nil {
		return nil, err
	}
	var newest []Entry
	for i, e := range all {
		if i+1 == len(all) || all[i+1].Step != e.Step {
			newest = append(newest, e)
		}
	}
	return newest, nil
}

// generations is list with older ones of the same step.
func generations(fs fileSystem, root string) ([]Entry, error) {
	names, err := fs.List(root)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Entry
	for _, name := range names {
		step, generation, ok := parseDir(name)
		if !ok {
			continue
		}
		dir := filepath.Join(root, name)
		f, err := fs.Open(filepath.Join(dir, indexName), false)
		if errors.Is(err, iofs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue // a folder or file of somebody else
		}
		if err == nil {
			f.Close()
		} // else whoever loads it is told
		all = append(all, Entry{step, dir, generation})
	}
	slices.SortFunc(all, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.generation, b.generation))
	})
	return all, nil
}
