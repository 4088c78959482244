package meta

import (
	"time"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// Work is one call of a kernel, without what it computes with.
type Work struct {
	Kernel string
	DType  dtype.DType // of a matrix product's elements, else 0
	FLOPs  int         // additions and multiplications, 8 for each other function
	Bytes  int         // read and written
	Rows   int         // that are found by an index; of a matrix product, the matrices
}

// count adds a call of a kernel.
func (d *Device) count(kernel string, flops, bytes int) { d.add(Work{kernel, 0, flops, bytes, 0}) }

// product adds a call of a kernel that multiplies a number of matrices.
func (d *Device) product(kernel string, dt dtype.DType, flops, bytes, matrices int) {
	d.add(Work{kernel, dt, flops, bytes, matrices})
}

// byRow adds a call of a kernel that finds rows by an index.
func (d *Device) byRow(kernel string, rows, flops, bytes int) {
	d.add(Work{kernel, 0, flops, bytes, rows})
}

func (d *Device) add(w Work) {
	if d.timed.Load() {
		d.calls.Add(1)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.work[w]++
}

// TakeWork returns how often each kernel was called with how much since the last TakeWork.
func (d *Device) TakeWork() map[Work]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.work
	d.work = map[Work]int{}
	return w
}

// Time has the device say from now on how often it was called and how long it computed, by TakeTime, and no more what with. It
// asks clock before and after it computes.
func (d *Device) Time(clock func() time.Duration) {
	d.clock = clock
	d.timed.Store(true)
}

// TakeTime returns how many kernels were called since Time or the last TakeTime, how many of them computed, and how long.
func (d *Device) TakeTime() (called, computed int, took time.Duration) {
	return int(d.calls.Swap(0)), int(d.computed.Swap(0)), time.Duration(d.took.Swap(0))
}

// compute computes with integers.
func (d *Device) compute(kernel func()) {
	if !d.timed.Load() {
		kernel()
		return
	}
	start := d.clock()
	kernel()
	d.took.Add(int64(d.clock() - start))
	d.computed.Add(1)
}

// A Role is what an optimizer has a tensor for.
type Role uint8

// The roles.
const (
	Parameter Role = iota
	Gradient
	State // what the optimizer remembers
	Roles
)

// has notes the role of a tensor of which p is an element; nil has none.
func (d *Device) has(role Role, p unsafe.Pointer) {
	if x, ok := d.pieceAt(p); ok && p != nil {
		if role == Gradient && x.born <= d.peakAt {
			d.grads[x.born] = x.bytes
		}
		if _, known := d.roles[x.at]; !known {
			d.roles[x.at] = role
		}
	}
}

// narrows notes that an optimizer rounds a parameter that it keeps in a wider type: that is its own
// then, made from the one that the program has.
func (d *Device) narrows(dst, src unsafe.Pointer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	x, _ := d.pieceAt(dst)
	y, _ := d.pieceAt(src)
	if role, ok := d.roles[y.at]; ok && role == Parameter && x.born < y.born {
		d.roles[x.at], d.roles[y.at] = Parameter, State
	}
}

// updates notes that an optimizer changes a parameter. rows says that it changes some rows alone.
func (d *Device) updates(param, grad unsafe.Pointer, rows bool, state ...unsafe.Pointer) {
	d.mu.Lock()
	d.has(Parameter, param)
	d.has(Gradient, grad)
	for _, p := range state {
		d.has(State, p)
	}
	if !rows {
		d.times[param]++
	}
	time := d.times[param]
	d.mu.Unlock()
	if !rows && d.config.Updated != nil {
		if err := d.config.Updated(time); err != nil {
			fault.Throw(err)
		}
	}
}

// Usage is memory in bytes.
type Usage struct {
	Peak  int        // the most that was in use at once
	Roles [Roles]int // of the tensors that optimizers have seen, at the peak
	Stack []uintptr  // the call stack at the peak
}

// Usage returns what was in use so far. Gradients are those that an optimizer has seen after the
// peak, parameters and its state those that have not gone.
func (d *Device) Usage() Usage {
	d.mu.Lock()
	defer d.mu.Unlock()
	u := Usage{Peak: d.peak, Stack: d.where[:d.depth]}
	for p, role := range d.roles {
		if x, ok := d.pieceAt(p); ok && role != Gradient && x.born <= d.peakAt {
			u.Roles[role] += x.bytes
		}
	}
	for _, bytes := range d.grads {
		u.Roles[Gradient] += bytes
	}
	return u
}

// elements counts a kernel over n elements, with flops each and a number of operands.
func (d *Device) elements(kernel string, dt dtype.DType, n, flops, operands int) {
	d.count(kernel, n*flops, n*operands*dt.Size())
}
