package fault

import (
	"runtime"
	"runtime/debug"
)

// Reads calls f, which reads the mapped memory of a file. ok is false if the system could not read the file there, because
// the disk fails or the file is shorter; f was left half way then. Any other panic continues.
func Reads(f func()) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interface {
			runtime.Error
			Addr() uintptr
		}: // see debug.SetPanicOnFault
			ok = false
		default:
			panic(r)
		}
	}()
	f()
	return true
}
