package corpus

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	cacheKept   = 4         // datasets that stay in the cache, the newest
	cacheSuffix = ".tokens" // of a dataset
	tempSuffix  = ".tmp"    // of one that is being written
)

// A cache is a directory of prepared datasets. A file appears in it whole, by
// renaming, and is never changed, so readers and writers need no lock.
type cache struct {
	dir string
	err error // why there is no directory
}

// openCache uses dir, or the user's cache directory if dir is "".
func openCache(dir string) cache {
	if dir != "" {
		return cache{dir: dir}
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return cache{err: fmt.Errorf("corpus: no cache: %w; the next run prepares the text again, unless one of them is set", err)}
	}
	return cache{dir: filepath.Join(user, "gorun", "train")}
}

// read returns the dataset with this name, nil if the cache does not have it. It returns
// an error if the cache has one that cannot be used.
func (c cache) read(name string) (*Dataset, error) {
	if c.err != nil {
		return nil, nil // write will say so
	}
	path := filepath.Join(c.dir, name+cacheSuffix)
	if _, err := os.Stat(path); err != nil {
		return nil, nil // not there, or not to be reached: write will say so
	}
	d, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("corpus: cached %s: %w; the text is prepared again and the file replaced", path, err)
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now) // keeps it among the newest; if that fails it goes earlier
	return d, nil
}

// write stores d under name and returns the path. It keeps the newest of the others.
func (c cache) write(name string, d *Dataset) (path string, err error) {
	if c.err != nil {
		return "", c.err
	}
	data, err := d.MarshalBinary()
	if err != nil {
		return "", err
	}
	path = filepath.Join(c.dir, name+cacheSuffix)
	if err := writeFile(path, data); err != nil {
		return "", fmt.Errorf("corpus: not cached: %w; the next run prepares the text again, unless XDG_CACHE_HOME names a directory that "+
			"can be written", err)
	}
	c.prune(path)
	return path, nil
}

// writeFile makes path with this content: all of it or, after an error, nothing.
func writeFile(path string, data []byte) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "*"+tempSuffix)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	if err := cmp.Or(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// prune removes all but the newest datasets, never the one at path, and the temporary
// files of killed writers. Another process may prune at the same time.
func (c cache) prune(path string) {
	type entry struct {
		path string
		time time.Time
	}
	var datasets []entry
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		at := entry{filepath.Join(c.dir, e.Name()), info.ModTime()}
		switch filepath.Ext(e.Name()) {
		case cacheSuffix:
			if at.path != path {
				datasets = append(datasets, at)
			}
		case tempSuffix:
			if time.Since(at.time) > time.Hour {
				datasets = append(datasets, entry{at.path, time.Time{}})
			}
		}
	}
	slices.SortFunc(datasets, func(a, b entry) int { return b.time.Compare(a.time) })
	for i, e := range datasets {
		if i >= cacheKept-1 || e.time.IsZero() {
			if err := os.Remove(e.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return // not ours to remove; the cache is only larger
			}
		}
	}
}
