//go:build linux && !nolibs

package cuda

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/ebitengine/purego"
)

// open loads the first shared library of names that is found, and finds symbols in it. It
// loads them RTLD_LOCAL, because of several versions of cuBLAS each must call its own
// functions.
func open(names []string, symbols []string) (name string, entry []uintptr, err error) {
	var handle uintptr
	var first error
	runtime.LockOSThread() // dlerror returns this thread's errors
	defer runtime.UnlockOSThread()
	for _, name = range names {
		if handle, err = purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL); err == nil {
			break
		}
		if first == nil {
			first = err
		}
	}
	if handle == 0 {
		return "", nil, fmt.Errorf("%s", strings.Join(strings.Fields(first.Error()), " "))
	}
	for _, s := range symbols {
		f, err := purego.Dlsym(handle, s)
		if err != nil {
			return "", nil, fmt.Errorf("%s has no %s", name, s)
		}
		entry = append(entry, f)
	}
	return name, entry, nil
}

// syscall calls a C function. A variable whose address is converted in the argument
// list stays where it is.
//
//go:uintptrescapes
func syscall(entry uintptr, args ...uintptr) int32 {
	r, _, _ := purego.SyscallN(entry, args...)
	return int32(r)
}

// driverNames are the libraries to try.
func driverNames() []string {
	if name := os.Getenv("GORUN_CUDA_LIB"); name != "" {
		return []string{name}
	}
	return []string{"libcuda.so.1"}
}
