package serve

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// A Live is a table whose files may be replaced and updated while it is read.
type Live struct {
	path string
	now  atomic.Pointer[Table] // nil after Close
}

// Open maps the table at path and its updates. It reads their headers, and the keys of
// updates, but no row.
func Open(path string) (*Live, error) {
	t, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("serve: Open: %w", err)
	}
	l := &Live{path: path}
	l.now.Store(t)
	return l, nil
}

// View calls f with the current table, which stays unchanged and mapped until f returns,
// whatever is exported and reloaded meanwhile. It returns an error after Close.
func (l *Live) View(f func(t *Table)) error {
	for {
		t := l.now.Load()
		if t == nil {
			return errors.New("serve: View: the table was closed")
		}
		if t.use() {
			defer t.release()
			f(t)
			return nil
		} // else another one has taken its place
	}
}

// Reload opens the files again, for the Views that begin from now on. changed is false if
// nothing was written since. After an error the table stays as it was.
func (l *Live) Reload() (changed bool, err error) {
	t, err := open(l.path)
	if err != nil {
		return false, fmt.Errorf("serve: Reload: %w", err)
	}
	old := l.now.Load()
	if old == nil {
		t.release()
		return false, errors.New("serve: Reload: the table was closed")
	}
	a, b := t.layers, old.layers
	if len(a) == len(b) && a[0].h.Table == b[0].h.Table && a[len(a)-1].h.DataCRC == b[len(b)-1].h.DataCRC || !l.now.CompareAndSwap(old, t) {
		t.release() // nothing is new, or another Reload was faster
		return false, nil
	}
	old.release()
	return true, nil
}

// Close unmaps the files when the last View has returned.
func (l *Live) Close() error {
	if t := l.now.Swap(nil); t != nil {
		t.release()
	}
	return nil
}
