package cuda

import (
	"bytes"
	"fmt"
	"unsafe"
)

// A function is one of the driver's that this package calls.
type function uint8

const (
	cuInit function = iota
	cuDriverGetVersion
	cuDeviceGetCount
	cuDeviceGet
	cuDeviceGetName
	cuDeviceGetAttribute
	cuDevicePrimaryCtxRetain
	cuCtxSetCurrent
	cuMemGetInfo
	cuMemAlloc
	cuMemFree
	cuMemHostAlloc
	cuMemHostRegister
	cuMemHostUnregister
	cuIpcGetMemHandle
	cuIpcOpenMemHandle
	cuIpcCloseMemHandle
	cuMemcpyHtoDAsync
	cuMemcpyDtoHAsync
	cuMemcpyDtoDAsync
	cuMemcpy2DAsync
	cuMemsetD8Async
	cuStreamCreate
	cuStreamSynchronize
	cuStreamWaitEvent
	cuEventCreate
	cuEventRecord
	cuModuleLoadDataEx
	cuModuleGetFunction
	cuLaunchKernel
	cuGetErrorName
	cuGetErrorString
)

func symbols() []string {
	return []string{
		"cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName",
		"cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuMemGetInfo_v2", "cuMemAlloc_v2",
		"cuMemFree_v2", "cuMemHostAlloc", "cuMemHostRegister_v2", "cuMemHostUnregister",
		"cuIpcGetMemHandle", "cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2",
		"cuMemcpyDtoDAsync_v2", "cuMemcpy2DAsync_v2", "cuMemsetD8Async", "cuStreamCreate", "cuStreamSynchronize", "cuStreamWaitEvent",
		"cuEventCreate", "cuEventRecord", "cuModuleLoadDataEx",
		"cuModuleGetFunction", "cuLaunchKernel", "cuGetErrorName", "cuGetErrorString",
	}
}

// The error codes that this package handles, see cuda.h.
const (
	success     = 0
	outOfMemory = 2
	noDevice    = 100
)

// The lowest version of CUDA that knows the kernels' PTX, and the lowest compute capability
// that it is made for.
const (
	leastVersion = 11080 // 11.8, whose PTX is 7.8
	leastMajor   = 8
)

// Attributes of a device.
const (
	attrProcessors = 16
	attrMajor      = 75
	attrMinor      = 76
)

// A Driver is the CUDA driver of this machine.
type Driver struct {
	name    string
	entry   []uintptr
	version int // 12040 for 12.4
	count   int
}

// Load finds and initialises the driver; its error says what is missing. There may be
// no device: see Count.
func Load() (*Driver, error) {
	name, entry, err := open(driverNames(), symbols())
	if err != nil {
		return nil, fmt.Errorf("cuda: no CUDA driver: %w", err)
	}
	d := &Driver{name: name, entry: entry}
	var n, version int32
	switch code := d.call(cuInit, 0); code {
	case success:
		if code := d.call(cuDeviceGetCount, uintptr(unsafe.Pointer(&n))); code != success {
			return nil, d.failure(code, symbols()[cuDeviceGetCount])
		}
	case noDevice:
	default:
		return nil, d.failure(code, "cuInit")
	}
	d.call(cuDriverGetVersion, uintptr(unsafe.Pointer(&version)))
	d.count, d.version = int(n), int(version)
	return d, nil
}

// Count returns the number of devices that this process may use: those that
// CUDA_VISIBLE_DEVICES leaves.
func (d *Driver) Count() int { return d.count }

// Version returns the version of CUDA that the driver knows, "12.4".
func (d *Driver) Version() string { return fmt.Sprintf("%d.%d", d.version/1000, d.version%1000/10) }

// call makes one call and returns its code. A variable whose address is converted
// in the argument list stays where it is.
//
//go:uintptrescapes
func (d *Driver) call(f function, args ...uintptr) int32 { return syscall(d.entry[f], args...) }

// check is call with an error for a code.
//
//go:uintptrescapes
func (d *Driver) check(f function, args ...uintptr) error {
	if code := d.call(f, args...); code != success {
		return d.failure(code, symbols()[f])
	}
	return nil
}

// text returns the C string that f has for an error code.
func (d *Driver) text(f function, code int32) string {
	var p *byte
	if d.call(f, uintptr(uint32(code)), uintptr(unsafe.Pointer(&p))) != success || p == nil {
		return ""
	}
	n := 0
	for n < 1024 && *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}

// failure describes a code.
func (d *Driver) failure(code int32, call string) *Error {
	return &Error{Call: call, Code: int(code), Name: d.text(cuGetErrorName, code), Text: d.text(cuGetErrorString, code), Rank: -1}
}

// A Description is what a device says of itself.
type Description struct {
	Name       string
	Capability string // "9.0"
	Processors int    // multiprocessors
}

// device returns the handle of device number i.
func (d *Driver) device(i int) (handle uintptr, err error) {
	var dev int32
	err = d.check(cuDeviceGet, uintptr(unsafe.Pointer(&dev)), uintptr(i))
	return uintptr(dev), err
}

// Describe returns what device number i says of itself.
func (d *Driver) Describe(i int) (Description, error) {
	dev, err := d.device(i)
	if err != nil {
		return Description{}, err
	}
	var major, minor, processors int32
	name := make([]byte, 128)
	for _, failed := range []error{
		d.check(cuDeviceGetName, uintptr(unsafe.Pointer(&name[0])), uintptr(len(name)), dev),
		d.check(cuDeviceGetAttribute, uintptr(unsafe.Pointer(&major)), attrMajor, dev),
		d.check(cuDeviceGetAttribute, uintptr(unsafe.Pointer(&minor)), attrMinor, dev),
		d.check(cuDeviceGetAttribute, uintptr(unsafe.Pointer(&processors)), attrProcessors, dev),
	} {
		if failed != nil {
			return Description{}, failed
		}
	}
	name, _, _ = bytes.Cut(name, []byte{0})
	return Description{string(name), fmt.Sprintf("%d.%d", major, minor), int(processors)}, nil
}

// fits returns an error if device i or the driver cannot run the kernels.
func (d *Driver) fits(i int, desc Description) error {
	var major int
	fmt.Sscan(desc.Capability, &major)
	switch {
	case d.version < leastVersion:
		return fmt.Errorf("cuda: the driver knows CUDA %s and the kernels need %d.%d: install a newer driver, 520 at least", d.Version(),
			leastVersion/1000, leastVersion%1000/10)
	case major < leastMajor:
		return fmt.Errorf("cuda: cuda:%d (%s) has compute capability %s and the kernels need %d.0: choose another with CUDA_VISIBLE_DEVICES, "+
			"or the CPU", i, desc.Name, desc.Capability, leastMajor)
	}
	return nil
}
