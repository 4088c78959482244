//go:build linux && !nolibs

package mpi

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// libraryVariable names the variable that says which library to load.
const libraryVariable = "GORUN_MPI_LIB"

// A function is one of the MPI functions that this package calls.
type function uint8

const (
	initThread function = iota
	initialized
	finalize
	abortAll
	commRank
	commSize
	commDup
	commSplit
	commFree
	commSetErrhandler
	allgather
	errorString
	errorClass
	test
	cancel
	iprobe
	commGetAttr
	isend
	irecv
	ibarrier
	ibcast
	iallreduce
	ireduce
	ireduceScatterBlock
	ireduceScatter
	iallgather
	iallgatherv
	igather
	iscatter
	ialltoall
	winAllocate
	winFree
	winSetErrhandler
	winLockAll
	winUnlockAll
	winFlush
	winFlushLocal
	winSync
	put
	get
	accumulate
	fetchAndOp
	compareAndSwap
	functions
)

var functionNames = [functions]string{
	"MPI_Init_thread", "MPI_Initialized", "MPI_Finalize", "MPI_Abort", "MPI_Comm_rank", "MPI_Comm_size", "MPI_Comm_dup",
	"MPI_Comm_split", "MPI_Comm_free", "MPI_Comm_set_errhandler", "MPI_Allgather", "MPI_Error_string", "MPI_Error_class", "MPI_Test",
	"MPI_Cancel", "MPI_Iprobe", "MPI_Comm_get_attr",
	"MPI_Isend", "MPI_Irecv", "MPI_Ibarrier", "MPI_Ibcast", "MPI_Iallreduce", "MPI_Ireduce", "MPI_Ireduce_scatter_block",
	"MPI_Ireduce_scatter", "MPI_Iallgather", "MPI_Iallgatherv", "MPI_Igather", "MPI_Iscatter", "MPI_Ialltoall",
	"MPI_Win_allocate", "MPI_Win_free", "MPI_Win_set_errhandler", "MPI_Win_lock_all", "MPI_Win_unlock_all", "MPI_Win_flush",
	"MPI_Win_flush_local", "MPI_Win_sync", "MPI_Put", "MPI_Get", "MPI_Accumulate", "MPI_Fetch_and_op", "MPI_Compare_and_swap",
}

// library is a loaded MPI library.
type library struct {
	*abi
	name    string // as given to the dynamic linker
	version string // first line of what it calls itself
	hangs   bool   // see hangsOverUCX
	handle  uintptr
	handles [constants]uintptr
	entry   [functions]uintptr
	args    [16]uintptr // of the call in progress, here so that they are not allocated anew each time
}

// The libraries that the dynamic linker is asked for. The generic names may be
// either family's.
var (
	openMPINames = []string{"libmpi.so.40", "libmpi.so.80", "libmpi_ibm.so"}
	mpichNames   = []string{"libmpich.so.12", "libmpi.so.12", "libmpi_cray.so.12", "libmpi_gnu.so.12", "libmpi_gnu_123.so.12",
		"libmpi_gnu_112.so.12", "libmpi_gnu_91.so.12"}
)

// candidates returns the libraries to try, best first: the one that belongs to
// the launcher, since another would make each rank a world of one.
func candidates(env func(string) (string, bool), launch Launch) []string {
	if name, ok := env(libraryVariable); ok && name != "" {
		return []string{name}
	}
	first, second := openMPINames, mpichNames
	if _, pmix := env("PMIX_RANK"); !pmix && launch.Launcher != "openmpi" && launch.Launcher != "" {
		first, second = second, first
	}
	all := append(append([]string(nil), first...), second...)
	return append(all, "libmpi.so")
}

// load opens the first of the candidates that there is.
func load(names []string) (*library, error) {
	runtime.LockOSThread() // dlerror returns this thread's errors
	defer runtime.UnlockOSThread()
	var first error
	for _, name := range names {
		handle, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL)
		if err == nil {
			return resolve(name, handle)
		}
		if first == nil || !missing(err) && missing(first) { // one that is there but broken says more
			first = err
		}
	}
	if len(names) == 1 {
		return nil, fmt.Errorf("%s=%s cannot be loaded: %s; name an installed MPI library or unset it", libraryVariable, names[0], oneLine(first))
	}
	if missing(first) {
		return nil, fmt.Errorf("no MPI library found (tried %s); install openmpi-bin (Open MPI) or mpich, or name the library in %s",
			strings.Join(names, ", "), libraryVariable)
	}
	return nil, fmt.Errorf("no MPI library can be loaded: %s; install the package that it needs, or name another library in %s",
		oneLine(first), libraryVariable)
}

// missing reports whether a dynamic linker's error says that there is no such library.
func missing(err error) bool { return strings.Contains(err.Error(), "No such file") }

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// resolve finds the functions and handles of a library.
func resolve(name string, handle uintptr) (*library, error) {
	l := &library{name: name, handle: handle}
	ask, ok := l.find("MPI_Get_library_version")
	if !ok {
		return nil, fmt.Errorf("%s has no MPI_Get_library_version; it is not an MPI library of version 3 or later: install openmpi-bin or mpich",
			name)
	}
	text, length := make([]byte, 8192+1), new(int32) // the longest of both families, MPI_MAX_LIBRARY_VERSION_STRING
	purego.SyscallN(ask, uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(length)))
	version, _, _ := bytes.Cut(text, []byte{0})
	var err error
	if l.abi, err = chooseABI(string(version)); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	l.version, l.hangs = firstLine(string(version)), hangsOverUCX(string(version))
	for f, symbol := range functionNames {
		if l.entry[f], ok = l.find(symbol); !ok {
			return nil, l.lacks(symbol)
		}
	}
	for c, value := range l.values {
		l.handles[c] = value
		if symbol := l.symbols[c]; symbol != "" {
			if l.handles[c], ok = l.find(symbol); !ok {
				return nil, l.lacks(symbol)
			}
		}
	}
	return l, nil
}

// find returns the address of what the library may have.
func (l *library) find(symbol string) (address uintptr, ok bool) {
	address, err := purego.Dlsym(l.handle, symbol)
	return address, err == nil
}

func (l *library) lacks(symbol string) error {
	return fmt.Errorf("%s (%s) has no %s; install Open MPI 4.1 or later (openmpi-bin) or MPICH 4 (mpich)", l.name, l.version, symbol)
}

// quiet keeps libraries that MPI loads from replacing the signal handlers of
// Go's runtime, which would end the program at the next signal that Go expects
// (a nil dereference, the profiler). What the user has set stays.
func quiet() error {
	// Its last words about messages that were given up would hide the reason.
	for name, value := range map[string]string{
		"UCX_ERROR_SIGNALS":    "", // UCX: ILL, SEGV, BUS, FPE
		"UCX_LOG_LEVEL":        "error",
		"UCX_HANDLE_ERRORS":    "none", // and what it does in them
		"OMPI_MCA_opal_signal": "",     // Open MPI: ABRT, BUS, FPE, SEGV
		"HFI_NO_BACKTRACE":     "1",    // PSM2
		"IPATH_NO_BACKTRACE":   "1",    // PSM
	} {
		if _, ok := os.LookupEnv(name); !ok {
			if err := os.Setenv(name, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// call makes one MPI call; the job's lock is held. Pointers among args are to
// the heap, since a stack may move, and what they name outlives the call.
func (l *library) call(f function, args ...uintptr) error {
	n := copy(l.args[:], args)
	code, _, _ := purego.SyscallN(l.entry[f], l.args[:n]...)
	if int32(code) == 0 { // MPI_SUCCESS
		return nil
	}
	return l.failure(f, int32(code))
}

// An Error is what an MPI function returned instead of MPI_SUCCESS.
type Error struct {
	Func  string // "MPI_Iallreduce"
	Code  int    // the library's own
	Class int    // the MPI standard's: MPI_ERR_TRUNCATE and the like, numbered as in the library's mpi.h
	Text  string // the library's description
}

// Error names the function, and gives the library's description and number.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s (error %d)", e.Func, e.Text, e.Code) }

// failure describes a code.
func (l *library) failure(f function, code int32) error {
	text, length, class := make([]byte, 1025), new(int32), new(int32)
	purego.SyscallN(l.entry[errorString], uintptr(code), uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(length)))
	purego.SyscallN(l.entry[errorClass], uintptr(code), uintptr(unsafe.Pointer(class)))
	said, _, _ := bytes.Cut(text, []byte{0})
	return &Error{Func: functionNames[f], Code: int(code), Class: int(*class), Text: strings.Join(strings.Fields(string(said)), " ")}
}
