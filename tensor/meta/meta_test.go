package meta

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// both calls f on a CPU and on a Device, and compares the shapes and types of what it returns.
func both(t *testing.T, name string, f func(dev tensor.Device) *tensor.Tensor) {
	t.Helper()
	want, got := f(tensor.NewCPU(nil)), f(New(Config{}))
	if got.DType() != want.DType() || !slices.Equal(got.Shape(), want.Shape()) {
		t.Errorf("%s: got %v%v, want %v%v", name, got.DType(), got.Shape(), want.DType(), want.Shape())
	}
}

// Every operator of the tables gives the shape and type that it gives on a CPU.
func TestShapesAndTypes(t *testing.T) {
	for _, dt := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16} {
		for _, shape := range [][]int{{3, 4}, {1, 4}, {0, 4}} {
			full := func(dev tensor.Device) *tensor.Tensor { return tensor.Full(dev, dt, 1, shape...) }
			for _, op := range kernel.UnaryOps() {
				both(t, op.String(), func(dev tensor.Device) *tensor.Tensor { return tensor.Unary(op, full(dev)) })
			}
			for _, op := range kernel.BinaryOps() {
				if !op.Takes(dt) {
					continue
				}
				both(t, op.String(), func(dev tensor.Device) *tensor.Tensor {
					return tensor.Binary(op, full(dev), tensor.Full(dev, dt, 2, 4))
				})
			}
			for _, op := range kernel.CompareOps() {
				both(t, op.String(), func(dev tensor.Device) *tensor.Tensor { return tensor.Compare(op, full(dev), full(dev)) })
			}
			for _, op := range kernel.ReduceOps() {
				both(t, op.String(), func(dev tensor.Device) *tensor.Tensor { return tensor.Reduce(op, full(dev), []int{1}, true) })
			}
			both(t, "MatMul", func(dev tensor.Device) *tensor.Tensor { return tensor.MatMul(full(dev), full(dev), false, true) })
			both(t, "Softmax", func(dev tensor.Device) *tensor.Tensor { return tensor.Softmax(full(dev), 1) })
			both(t, "IndexSelect", func(dev tensor.Device) *tensor.Tensor {
				return tensor.IndexSelect(tensor.Full(dev, dt, 1, 5, 4), 0, tensor.FromSlice(dev, []int64{4, 0, 4}, 3))
			})
		}
	}
}

// Integers are what a CPU computes.
func TestIntegersAreReal(t *testing.T) {
	d := New(Config{})
	ids := tensor.FromSlice(d, []int64{7, 3, 7, 5}, 4)
	u := tensor.Unique(ids, 0, 8)
	if got := tensor.ToSlice[int64](u.Index); !slices.Equal(got, []int64{3, 5, 7}) {
		t.Errorf("distinct ids: %v", got)
	}
	if got := tensor.ToSlice[int64](tensor.Clone(tensor.Narrow(ids, 0, 1, 2))); !slices.Equal(got, []int64{3, 7}) {
		t.Errorf("a part: %v", got)
	}
}

// A tensor larger than the machine's memory counts, and costs nothing.
func TestMemoryIsCounted(t *testing.T) {
	d := New(Config{})
	scope := d.Open()
	x := tensor.Zeros(d, tensor.Float32, 1<<20, 1<<18) // 1 TiB
	if live := d.Stats().Live; live < x.Bytes() || live > x.Bytes()+x.Bytes()/256 {
		t.Errorf("%d bytes in use, of %d", live, x.Bytes())
	}
	scope.Close()
	if u := d.Usage(); d.Stats().Live != 0 || u.Peak < 1<<40 || len(u.Stack) == 0 {
		t.Errorf("%d bytes in use, peak %d", d.Stats().Live, u.Peak)
	}
}

// A tensor is found by any of its addresses, also where others were before.
func TestPieces(t *testing.T) {
	d := New(Config{})
	base := tensor.New(d, tensor.Uint8, 1024).Ptr()
	for _, c := range []struct {
		at, bytes int
		dt        tensor.DType
	}{{0, 64, tensor.Int64}, {64, 64, tensor.Float32}, {256, 64, tensor.Int64}, {0, 512, tensor.Float32}, {0, 64, tensor.Int64}} {
		d.Made(unsafe.Add(base, c.at), c.bytes, c.dt)
		for _, i := range []int{0, c.bytes / 2, c.bytes - 1} {
			if _, got := d.Numberless(unsafe.Add(base, c.at+i), 1); got != c.dt.Float() {
				t.Errorf("%+v: address %d: %v", c, i, got)
			}
		}
	}
}

// Floats in a message of bytes are no numbers, and what lies beside them is.
func TestFloatsAmongBytes(t *testing.T) {
	d := New(Config{})
	const bytes = 1 << 40
	message := tensor.New(d, tensor.Uint8, bytes)
	ids, values := tensor.FromSlice(d, []int64{3, 7}, 2), tensor.New(d, tensor.Float32, bytes/4-8)
	behind := tensor.FromSlice(d, []int64{9, 11}, 2)
	at := func(x *tensor.Tensor, i int) unsafe.Pointer { return unsafe.Add(x.Ptr(), i) }
	d.CopyBytes(message.Ptr(), ids.Ptr(), 16)
	d.CopyBytes(at(message, 16), values.Ptr(), values.Bytes())
	d.CopyBytes(at(message, bytes-16), behind.Ptr(), 16)
	runs := func(want ...int) { // of the message, with and without numbers in turn
		t.Helper()
		from := 0
		for i, n := range want {
			if run, none := d.Numberless(at(message, from), bytes-from); run != n || none != (i%2 == 1) {
				t.Errorf("run %d: %d bytes, without numbers: %v; want %d", i, run, none, n)
			}
			from += n
		}
		if from != bytes {
			t.Errorf("%d bytes of %d", from, bytes)
		}
	}
	runs(16, bytes-32, 16)
	d.CopyBytes(at(message, 1024), ids.Ptr(), 16) // among them
	runs(16, 1024-16, 16, bytes-1024-32, 16)
	d.CopyBytes(at(message, 0), values.Ptr(), values.Bytes())
	if run, none := d.Numberless(message.Ptr(), bytes); !none || run != bytes-32 {
		t.Errorf("%d bytes, without numbers: %v", run, none)
	}
	d.CopyBytes(behind.Ptr(), at(message, bytes-16), 16)
	d.CopyBytes(values.Ptr(), at(message, bytes-16), 16) // a float never has the bits of an integer
	if got := tensor.ToSlice[int64](behind); !slices.Equal(got, []int64{9, 11}) {
		t.Errorf("behind the floats: %v", got)
	}
	if got := tensor.ToSlice[float32](tensor.Narrow(values, 0, 0, 2)); !slices.Equal(got, []float32{0, 0}) {
		t.Errorf("floats: %v", got)
	}
}

// Memory that had integers is zero when floats get it, and its whole pages are given back.
func TestWipe(t *testing.T) {
	const pages = 4
	for _, c := range [][2]int{{0, pages << 12}, {64, 4096}, {64, 64}, {4096, 4096}, {100, 9000}, {8, 0}} {
		p, err := addresses{}.Alloc(pages << 12)
		if err != nil {
			t.Fatal(err)
		}
		b := unsafe.Slice((*byte)(p), pages<<12)
		for i := range b {
			b[i] = 1
		}
		wipe(unsafe.Add(p, c[0]), c[1])
		for i, x := range b {
			if inside := i >= c[0] && i < c[0]+c[1]; inside == (x == 1) {
				t.Fatalf("%v: byte %d is %d", c, i, x)
			}
		}
		addresses{}.Free(p, pages<<12)
	}
}

// Products count two operations for each term, and their matrices.
func TestWorkIsCounted(t *testing.T) {
	d := New(Config{})
	a, b := tensor.New(d, tensor.Float32, 5, 3, 4), tensor.New(d, tensor.Float32, 5, 4, 7)
	tensor.MatMul(a, b, false, false)
	want := map[Work]int{{"MatMul", tensor.Float32, 2 * 5 * 3 * 7 * 4, 4 * 5 * (3*4 + 4*7 + 3*7), 5}: 1}
	if got := d.TakeWork(); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Kernels that find rows by an index count them.
func TestRowsAreCounted(t *testing.T) {
	d := New(Config{})
	table, ids := tensor.New(d, tensor.Float32, 50, 3), tensor.FromSlice(d, []int64{7, 9, 7, 2}, 4)
	d.TakeWork()
	rows := tensor.TakeRows(table, ids, 0)
	u := tensor.Unique(ids, 0, 50)
	tensor.Adagrad{LR: 1}.StepRows(table, u.SumRows(rows), tensor.New(d, tensor.Float32, 50), nil)
	tensor.IndexAddTo(table, 1, tensor.FromSlice(d, []int64{2, 1}, 2), tensor.New(d, tensor.Float32, 50, 2))
	got := map[string]int{}
	for w, n := range d.TakeWork() {
		if w.Rows > 0 {
			got[w.Kernel] += n * w.Rows
		}
	}
	want := map[string]int{"TakeRows": 4, "Unique": 4, "SumSegments": 4, "AdagradRows": 3, "IndexAdd": 50 * 2}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A device that times says how many kernels were called, and of those that computed how many and how long by its clock.
func TestTime(t *testing.T) {
	d := New(Config{})
	floats, ints := tensor.New(d, tensor.Float32, 50), tensor.FromSlice(d, []int64{7, 9, 7, 2}, 4)
	now := time.Duration(0)
	d.Time(func() time.Duration { now += time.Second; return now })
	d.TakeTime()
	tensor.Binary(kernel.OpAdd, floats, floats)
	if sum := tensor.Binary(kernel.OpAdd, ints, ints); !slices.Equal(tensor.Data[int64](sum), []int64{14, 18, 14, 4}) {
		t.Errorf("got %v", tensor.Data[int64](sum))
	}
	u := tensor.Unique(ints, 0, 50)
	if called, computed, took := d.TakeTime(); called != 3 || computed != 2 || took != 2*time.Second || u.Index.Numel() != 3 {
		t.Errorf("%d kernels were called, and %d computed in %v; %d distinct", called, computed, took, u.Index.Numel())
	}
	if called, computed, took := d.TakeTime(); called+computed != 0 || took != 0 || len(d.TakeWork()) > 1 {
		t.Errorf("after that %d were called, and %d computed in %v", called, computed, took)
	}
}

// The host reads floats only if it may, and gets the number that it is to get.
func TestReadsAreAsked(t *testing.T) {
	refused := errors.New("refused")
	answer := error(nil)
	d := New(Config{Read: func(string, []uintptr) (float64, error) { return 3, answer }})
	x := tensor.Full(d, tensor.Float32, 1)
	if got := x.Item(); got != 3 {
		t.Errorf("got %v", got)
	}
	answer = refused
	err := func() (err error) {
		defer fault.Catch(&err)
		x.Item()
		return nil
	}()
	if !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
	tensor.Edit(x, func(x []float32) { x[0] = 2 })
}
