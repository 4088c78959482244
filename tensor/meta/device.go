package meta

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/mem"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/cpu"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// A Config says what a Device reports of the program that computes on it.
type Config struct {
	// Read is asked when the host reads floats in the function named op; stack is its call
	// stack. The host gets the number that Read returns for each of them; an error is thrown.
	// nil: zeros.
	Read func(op string, stack []uintptr) (float64, error)
	// Updated is called before an optimizer changes a dense parameter for the time-th time, which
	// counts from 1. An error is thrown. nil: nothing is.
	Updated func(time int) error
}

// A Device is a tensor.Device without numbers.
type Device struct {
	*tensor.Memory
	config Config
	real   cpu.Kernels
	number float64 // what the host reads of floats

	timed    atomic.Bool // see Time
	clock    func() time.Duration
	calls    atomic.Int64
	computed atomic.Int64 // of the calls
	took     atomic.Int64 // nanoseconds

	mu     sync.Mutex               // guards what follows: calls that were started ask from other goroutines
	pieces []piece                  // by address
	holes  map[unsafe.Pointer]spans // of pieces of bytes, by their first: where floats were copied to
	work   map[Work]int
	roles  map[unsafe.Pointer]Role // of tensors, by their first byte
	times  map[unsafe.Pointer]int  // how often a parameter was updated

	made   int // tensors so far
	peak   int
	peakAt int         // how many tensors had been made
	grads  map[int]int // bytes of the gradients that were there, by when they were made
	where  [48]uintptr // the stack at the peak
	depth  int
}

// A piece is memory of one tensor.
type piece struct {
	at    unsafe.Pointer
	bytes int
	dtype dtype.DType
	born  int // how many tensors were made before
}

var _ tensor.Device = (*Device)(nil)

// New returns a Device of its own memory.
func New(c Config) *Device {
	d := &Device{config: c, work: map[Work]int{}, roles: map[unsafe.Pointer]Role{}, grads: map[int]int{}, times: map[unsafe.Pointer]int{},
		holes: map[unsafe.Pointer]spans{}}
	d.Memory = &tensor.Memory{Memory: kernel.Memory{Pool: mem.NewPool(addresses{}, nil), OnHost: true, Watcher: d}}
	d.real = cpu.New(d.Memory.Scratch)
	return d
}

// String returns "meta".
func (d *Device) String() string { return "meta" }

// Made notes which tensor has the memory now, and whether there was never more in use.
func (d *Device) Made(p unsafe.Pointer, bytes int, dt dtype.DType) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.made++
	i, found := slices.BinarySearchFunc(d.pieces, p, byAddress)
	now := piece{p, bytes, dt, d.made}
	if !found {
		d.pieces = slices.Insert(d.pieces, i, now)
	} else {
		if was := d.pieces[i]; dt.Float() && !was.dtype.Float() {
			wipe(p, min(was.bytes, bytes)) // else the host would read integers as floats
		}
		d.pieces[i] = now
	}
	gone := i + 1 // pieces behind p whose addresses the pool has given back, and got again as one
	for gone < len(d.pieces) && uintptr(d.pieces[gone].at) < uintptr(p)+uintptr(bytes) {
		delete(d.roles, d.pieces[gone].at)
		delete(d.holes, d.pieces[gone].at)
		gone++
	}
	d.pieces = slices.Delete(d.pieces, i+1, gone)
	delete(d.roles, p)
	delete(d.holes, p)
	if live := d.Stats().Live; live > d.peak {
		d.peak, d.peakAt = live, d.made
		clear(d.grads)
		d.depth = runtime.Callers(3, d.where[:])
	}
}

func byAddress(x piece, p unsafe.Pointer) int {
	switch {
	case uintptr(x.at) < uintptr(p):
		return -1
	case uintptr(x.at) > uintptr(p):
		return 1
	}
	return 0
}

// pieceAt returns the piece of memory in which p lies.
func (d *Device) pieceAt(p unsafe.Pointer) (piece, bool) {
	i, found := slices.BinarySearchFunc(d.pieces, p, byAddress)
	if !found {
		i--
	}
	if i < 0 || !d.pieces[i].holds(p) {
		return piece{}, false
	}
	return d.pieces[i], true
}

// holds reports whether p is in the piece, or just behind it as an empty part of it is.
func (x piece) holds(p unsafe.Pointer) bool {
	return uintptr(p) >= uintptr(x.at) && uintptr(p) <= uintptr(x.at)+uintptr(x.bytes)
}

// Numberless reports whether the bytes from p on have no numbers, so that there is nothing to move
// from there or to there: floats of this device, and bytes that floats were copied to. That is so
// of the first run of them, which is at most bytes.
func (d *Device) Numberless(p unsafe.Pointer, bytes int) (run int, numberless bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	x, ok := d.pieceAt(p)
	if !ok || x.dtype.Float() {
		return bytes, ok
	}
	at := int(uintptr(p) - uintptr(x.at))
	run, numberless = d.holes[x.at].run(at)
	return min(run, bytes), numberless
}

// isReal reports whether there is data at p.
func (d *Device) isReal(p unsafe.Pointer) bool {
	_, numberless := d.Numberless(p, 1)
	return !numberless
}

// WithoutFloats reports that floats have no elements.
func (d *Device) WithoutFloats() bool { return true }

// Touches asks whether the host may read floats. It may always write them.
func (d *Device) Touches(op string, dt dtype.DType) {
	d.number = 0
	if !dt.Float() || op == "Edit" || d.config.Read == nil {
		return
	}
	var stack [64]uintptr
	v, err := d.config.Read(op, stack[:runtime.Callers(3, stack[:])])
	if err != nil {
		fault.Throw(err)
	}
	d.number = v
}

// ToHost copies integers, and writes the number that the host reads for each float.
func (d *Device) ToHost(dst, src unsafe.Pointer, bytes int) {
	d.mu.Lock()
	x, _ := d.pieceAt(src)
	d.mu.Unlock()
	if x.dtype.Float() {
		d.compute(func() { d.real.Fill(x.dtype, dst, bytes/x.dtype.Size(), d.number) })
		return
	}
	d.compute(func() { d.real.CopyBytes(dst, src, bytes) })
}

// FromHost copies integers.
func (d *Device) FromHost(dst, src unsafe.Pointer, bytes int) {
	if d.isReal(dst) {
		d.compute(func() { d.real.CopyBytes(dst, src, bytes) })
	}
}

// CopyBytes copies integers. Floats among bytes, as in a message that has indices too, stay without numbers.
func (d *Device) CopyBytes(dst, src unsafe.Pointer, bytes int) {
	d.count("Copy", 0, 2*bytes)
	numbers := d.isReal(src)
	if d.setHole(dst, bytes, !numbers) && numbers {
		d.compute(func() { d.real.CopyBytes(dst, src, bytes) })
	}
}
