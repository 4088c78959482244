package cuda

import (
	"archive/zip"
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

//go:generate go run gen.go

//go:embed kernels/*.ptx kernels/*.zip
var ptx embed.FS

// threads is the size of a block, THREADS in kernels/common.h.
const threads = 256

// modules are the kernels of a device. A file of kernels is loaded at the first use of one
// of them.
type modules struct {
	functions map[string]uintptr // the kernels that the computing goroutine has used
	file      map[string]*module // the file of each kernel
	code      *zip.Reader        // machine code of the kernels, nil if there is none for this GPU
}

// A module is a file of kernels.
type module struct {
	name   string
	once   sync.Once // a Stage loads a kernel too
	handle uintptr
	err    error
}

// index notes which file each kernel is in.
func (g *Device) index() error {
	code, err := machineCode(g.desc.Capability)
	if err != nil {
		return err
	}
	g.modules = modules{map[string]uintptr{}, map[string]*module{}, code}
	files, err := ptx.ReadDir("kernels")
	if err != nil {
		return err
	}
	for _, f := range files {
		text, err := ptx.ReadFile("kernels/" + f.Name())
		if err != nil {
			return err
		}
		if !strings.HasSuffix(f.Name(), ".ptx") {
			continue
		}
		m := &module{name: f.Name()}
		for _, name := range entries(string(text)) {
			g.modules.file[name] = m
		}
	}
	return nil
}

// machineCode returns the file of machine code for GPUs of a compute capability, nil if
// there is none or GORUN_CUDA_PTX=1 wants the driver to compile.
func machineCode(capability string) (*zip.Reader, error) {
	name := ""
	switch {
	case os.Getenv("GORUN_CUDA_PTX") == "1":
	case strings.HasPrefix(capability, "8."):
		name = "kernels/sm_80.zip"
	case capability == "9.0":
		name = "kernels/sm_90.zip"
	}
	if name == "" {
		return nil, nil
	}
	data, err := ptx.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return zip.NewReader(bytes.NewReader(data), int64(len(data)))
}

// load loads the module unless it is loaded: its machine code, or if the driver refuses
// that, the PTX, which the driver compiles.
func (m *module) load(g *Device) {
	m.once.Do(func() {
		if g.modules.code != nil {
			code, err := fs.ReadFile(g.modules.code, strings.TrimSuffix(m.name, ".ptx")+".cubin")
			if err == nil {
				m.handle, err = g.compile(m.name, code)
			}
			if err == nil {
				return
			}
		}
		text, err := ptx.ReadFile("kernels/" + m.name)
		if err == nil {
			m.handle, err = g.compile(m.name, text)
		}
		m.err = err
	})
}

// entries returns the names of a module's kernels.
func entries(text string) (names []string) {
	const mark = ".visible .entry "
	for {
		_, rest, ok := strings.Cut(text, mark)
		if !ok {
			return names
		}
		name, _, _ := strings.Cut(rest, "(")
		names, text = append(names, name), rest
	}
}

// function returns a kernel and loads its file at the first use.
func (g *Device) function(name string) uintptr {
	if f, ok := g.modules.functions[name]; ok {
		return f
	}
	f, err := g.find(name)
	if err != nil {
		fault.Throw(err)
	}
	g.modules.functions[name] = f
	return f
}

// find returns a kernel, after loading its module.
func (g *Device) find(name string) (f uintptr, err error) {
	m, ok := g.modules.file[name]
	if !ok {
		return 0, fmt.Errorf("cuda: there is no kernel %s", name)
	}
	if m.load(g); m.err != nil {
		return 0, m.err
	}
	defer g.enter()()
	symbol := append([]byte(name), 0)
	if code := g.drv.call(cuModuleGetFunction, uintptr(unsafe.Pointer(&f)), m.handle, uintptr(unsafe.Pointer(&symbol[0]))); code != success {
		return 0, fmt.Errorf("kernel %s: %w", name, g.failure(cuModuleGetFunction, code))
	}
	return f, nil
}

// compile has the driver load machine code, or compile PTX, which the driver caches.
func (g *Device) compile(file string, text []byte) (module uintptr, err error) {
	defer g.enter()()
	const errorLog, errorLogBytes = 5, 6 // CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
	said := new([4 << 10]byte)           // the messages of the driver's compiler
	var pin runtime.Pinner
	pin.Pin(said)
	defer pin.Unpin()
	options := [...]int32{errorLog, errorLogBytes}
	values := [...]uintptr{uintptr(unsafe.Pointer(said)), uintptr(len(said))}
	text = append(text, 0)
	said[0] = 0
	code := g.drv.call(cuModuleLoadDataEx, uintptr(unsafe.Pointer(&module)), uintptr(unsafe.Pointer(&text[0])),
		uintptr(len(options)), uintptr(unsafe.Pointer(&options)), uintptr(unsafe.Pointer(&values)))
	if code == success {
		return module, nil
	}
	log, _, _ := bytes.Cut(said[:], []byte{0})
	if log = bytes.TrimSpace(log); len(log) > 0 {
		log = append([]byte(": "), log...)
	}
	return 0, fmt.Errorf("%s for compute capability %s: %w%s", file, g.desc.Capability, g.failure(cuModuleLoadDataEx, code), log)
}

// A launch is a kernel with its arguments in memory, each aligned to its own size.
type launch struct {
	d     *Device
	name  string
	size  uintptr
	buf   [640]byte
	extra [5]uintptr // see cuLaunchKernel
}

// kernel begins a launch; the arguments follow in the order of the source.
func (g *Device) kernel(name string) *launch {
	g.call.name, g.call.size = name, 0
	return &g.call
}

// typed begins the launch of the form of a kernel for float32, float64 or bfloat16.
func (g *Device) typed(name string, dt tensor.DType) *launch {
	switch dt {
	case tensor.Float64:
		return g.kernel(name + "_f64")
	case tensor.BFloat16:
		return g.kernel(name + "_bf16")
	}
	return g.kernel(name + "_f32")
}

// put appends an argument.
func put[T any](l *launch, v T) *launch {
	bytes, align := unsafe.Sizeof(v), unsafe.Alignof(v)
	at := ints.RoundUp(l.size, align)
	*(*T)(unsafe.Pointer(&l.buf[at])) = v
	l.size = at + bytes
	return l
}

func (l *launch) i32(v int) *launch               { return put(l, int32(v)) }
func (l *launch) i64(v ...int) *launch            { return puts(l, v) }
func (l *launch) u64(v uint64) *launch            { return put(l, v) }
func (l *launch) f64(v float64) *launch           { return put(l, v) }
func (l *launch) dt(v tensor.DType) *launch       { return put(l, int32(v)) }
func (l *launch) loop(v *kernel.Loop) *launch     { return put(l, *v) }
func (l *launch) ptr(p ...unsafe.Pointer) *launch { return puts(l, p) }

// index appends the type of indices and their address.
func (l *launch) index(x kernel.Index) *launch { return l.dt(x.DType).ptr(x.At) }

func (l *launch) flag(v bool) *launch {
	if v {
		return l.i32(1)
	}
	return l.i32(0)
}

// float appends v as the element type dt.
func (l *launch) float(dt tensor.DType, v float64) *launch {
	if dt == tensor.Float64 {
		return put(l, v)
	}
	return put(l, float32(v))
}

func puts[T any](l *launch, v []T) *launch {
	for _, x := range v {
		put(l, x)
	}
	return l
}

// each launches with a thread for each of n elements, as far as the device has room.
func (l *launch) each(n int) { l.blocks(ints.DivUp(n, threads)) }

// warps launches with a warp for each of n rows, as far as the device has room.
func (l *launch) warps(n int) { l.each(32 * n) }

// blocks launches n blocks, as far as the device has room. It does nothing for none.
func (l *launch) blocks(n int) {
	if n <= 0 {
		return
	}
	g := l.d
	f := g.function(l.name)
	g.recent.add(l.name)
	g.do(cuLaunchKernel, f, uintptr(min(n, g.grids)), 1, 1, threads, 1, 1, 0, g.stream, 0, l.arguments())
	if g.sync {
		g.Sync()
	}
}

// arguments returns the last argument of cuLaunchKernel, the address of extra.
func (l *launch) arguments() uintptr {
	const bufferPointer, bufferSize = 1, 2 // CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE
	l.extra = [5]uintptr{bufferPointer, uintptr(unsafe.Pointer(&l.buf)), bufferSize, uintptr(unsafe.Pointer(&l.size)), 0}
	return uintptr(unsafe.Pointer(&l.extra))
}
