package backend

import "sync"

// Attrs are values that are kept under keys. The zero Attrs has none. It may be used by several
// goroutines.
type Attrs struct{ vals sync.Map }

// Delete forgets what is kept under key.
func (a *Attrs) Delete(key any) { a.vals.Delete(key) }

// Get returns what is kept under key, making it by make if there is nothing yet. If goroutines race
// to make a value the first one stays.
func (a *Attrs) Get(key any, make func() any) any {
	if v, ok := a.vals.Load(key); ok {
		return v
	}
	v, _ := a.vals.LoadOrStore(key, make())
	return v
}
