package checkpoint

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// A memFS is a file system in memory that knows what would survive a crash: the
// contents of a file as of its last Sync, the names in a folder as of its last
// SyncDir. It is after pebble's NewCrashableMem. It counts its operations, and
// fails what fault says.
type memFS struct {
	mu    sync.Mutex
	root  *memNode
	ops   int                             // that change something, so far
	reads int                             // bytes
	fault func(op int, what string) error // of operation number op, from 1; nil: none
}

type memNode struct {
	data, synced   []byte
	names, durable map[string]*memNode // of a folder; nil for a file
}

func newMemFS() *memFS { return &memFS{root: newMemDir()} }

func newMemDir() *memNode {
	return &memNode{names: map[string]*memNode{}, durable: map[string]*memNode{}}
}

var errInjected = errors.New("injected")

// change counts an operation; what it would change is left alone if it fails.
func (m *memFS) change(format string, args ...any) error {
	m.ops++
	if m.fault == nil {
		return nil
	}
	return m.fault(m.ops, fmt.Sprintf(format, args...))
}

func split(name string) []string {
	return strings.FieldsFunc(strings.TrimPrefix(filepath.Clean(name), "."), func(r rune) bool { return r == '/' })
}

func (m *memFS) find(op, name string) (*memNode, error) {
	n := m.root
	for _, part := range split(name) {
		if n = n.names[part]; n == nil {
			return nil, &iofs.PathError{Op: op, Path: name, Err: iofs.ErrNotExist}
		}
	}
	return n, nil
}

func (m *memFS) Create(name string) (file, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.change("create %s", name); err != nil {
		return nil, err
	}
	dir, err := m.find("create", filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	n := &memNode{}
	dir.names[filepath.Base(name)] = n
	return &memFile{m, n, name}, nil
}

func (m *memFS) Open(name string, follow bool) (file, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("open", name)
	if err != nil {
		return nil, err
	}
	return &memFile{m, n, name}, nil
}

func (m *memFS) Mkdir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.change("mkdir %s", name); err != nil {
		return err
	}
	n := m.root
	for _, part := range split(name) {
		if n.names[part] == nil {
			n.names[part] = newMemDir()
		}
		n = n.names[part]
	}
	return nil
}

func (m *memFS) List(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("list", dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range n.names {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

func (m *memFS) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.change("rename %s", from); err != nil {
		return err
	}
	n, err := m.find("rename", from)
	if err != nil {
		return err
	}
	dir, err := m.find("rename", filepath.Dir(to))
	if err != nil {
		return err
	}
	if old := dir.names[filepath.Base(to)]; old != nil && len(old.names) > 0 {
		return &iofs.PathError{Op: "rename", Path: to, Err: iofs.ErrExist}
	}
	delete(dir.names, filepath.Base(from))
	dir.names[filepath.Base(to)] = n
	return nil
}

func (m *memFS) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.change("remove %s", name); err != nil {
		return err
	}
	dir, err := m.find("remove", filepath.Dir(name))
	if err != nil {
		return nil
	}
	if n := dir.names[filepath.Base(name)]; n != nil && n.names != nil {
		n.names = map[string]*memNode{} // a crash may leave the folder without some of its files
	}
	delete(dir.names, filepath.Base(name))
	return nil
}

// Lock does nothing: the locks of a crashed machine are gone, and no other process is here.
func (m *memFS) Lock(name string) error { return nil }

func (m *memFS) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.change("syncdir %s", name); err != nil {
		return err
	}
	n, err := m.find("sync", name)
	if err != nil {
		return err
	}
	n.durable = maps.Clone(n.names)
	return nil
}

// sector is how much of a file a disk writes at once.
const sector = 16

// crash returns what is there after a crash. What was not made durable is there
// or not, or in part, or with zeros in it, by chance; with a nil rng it never is.
func (m *memFS) crash(rng *rand.Rand) *memFS {
	m.mu.Lock()
	defer m.mu.Unlock()
	maybe := func() bool { return rng != nil && rng.IntN(2) == 0 }
	var after func(n *memNode) *memNode
	after = func(n *memNode) *memNode {
		if n.names == nil {
			data := slices.Clone(n.synced)
			if maybe() {
				data = slices.Clone(n.data[:max(len(n.synced), rng.IntN(len(n.data)+1))])
				for at := len(n.synced); at < len(data); at += sector { // blocks reach the disk in any order
					if maybe() {
						clear(data[at:min(at+sector, len(data))])
					}
				}
			}
			return &memNode{data: slices.Clone(data), synced: slices.Clone(data)}
		}
		c := newMemDir()
		for _, names := range []map[string]*memNode{n.durable, n.names} {
			for name := range names {
				if c.durable[name] != nil {
					continue
				}
				child := n.durable[name]
				if child != n.names[name] && maybe() {
					child = n.names[name]
				}
				if child != nil {
					c.durable[name] = after(child)
				}
			}
		}
		c.names = maps.Clone(c.durable)
		return c
	}
	return &memFS{root: after(m.root)}
}

type memFile struct {
	m    *memFS
	n    *memNode
	name string
}

func (f *memFile) Write(b []byte) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	err := f.m.change("write %s", f.name)
	if err != nil {
		b = b[:len(b)/2] // a write that fails may have been made in part
	}
	f.n.data = append(f.n.data[:len(f.n.data):len(f.n.data)], b...)
	return len(b), err
}

func (f *memFile) ReadAt(b []byte, at int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if at > int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(b, f.n.data[at:])
	f.m.reads += n
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) Size() (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return len(f.n.data), nil
}

func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.m.change("sync %s", f.name); err != nil {
		return err
	}
	f.n.synced = slices.Clone(f.n.data)
	return nil
}

func (f *memFile) Close() error { return nil }
