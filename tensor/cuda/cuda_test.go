package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"

	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/cuda/cudatest"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// gpu opens a device of the fake driver, or with GORUN_TEST_GPU=1 of the machine's,
// once for cuBLAS and once for the kernel of this package.
func eachGPU(t *testing.T, f func(t *testing.T, dev *Device)) {
	t.Helper()
	for _, products := range []string{"cublas", "own"} {
		t.Run(products, func(t *testing.T) { f(t, openGPU(t, products == "cublas")) })
	}
}

func openGPU(t *testing.T, cublas bool) *Device {
	t.Helper()
	t.Setenv("GORUN_CUBLAS_LIB", "none")
	if os.Getenv("GORUN_TEST_GPU") == "1" {
		if cublas {
			t.Setenv("GORUN_CUBLAS_LIB", "")
		}
	} else {
		lib := cudatest.Library(t)
		t.Setenv("GORUN_CUDA_LIB", lib)
		t.Setenv("GORUN_CUDA_POOL", "0") // it looks for accesses outside what is allocated
		if cublas {
			t.Setenv("GORUN_CUBLAS_LIB", lib)
		}
	}
	drv, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	dev, err := drv.Open(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := caught(dev.Sync); err != nil {
			t.Error(err)
		}
	})
	return dev
}

// A check compares what f computes on the GPU with what it computes on the CPU, on
// arguments made from a seed.
type check struct {
	t   *testing.T
	dev *Device
	cpu tensor.Device
	rng *rand.Rand
}

func newCheck(t *testing.T, dev *Device) *check {
	return &check{t, dev, tensor.NewCPU(nil), rand.New(rand.NewPCG(1, 2))}
}

// arg returns a tensor of small random numbers on the CPU.
func (c *check) arg(dt tensor.DType, shape ...int) *tensor.Tensor {
	n := 1
	for _, s := range shape {
		n *= s
	}
	v := make([]float64, n)
	for i := range v {
		switch {
		case dt == tensor.Float32 || dt == tensor.Float64:
			v[i] = c.rng.NormFloat64()
		case dt == tensor.Bool:
			v[i] = float64(c.rng.IntN(2))
		case dt == tensor.Uint8:
			v[i] = float64(c.rng.IntN(9))
		default:
			v[i] = float64(c.rng.IntN(17) - 8)
		}
	}
	return tensor.Cast(tensor.FromSlice(c.cpu, v, shape...), dt)
}

// ids returns integers in [lo, hi).
func (c *check) ids(dt tensor.DType, lo, hi int, shape ...int) *tensor.Tensor {
	n := 1
	for _, s := range shape {
		n *= s
	}
	v := make([]int64, n)
	for i := range v {
		v[i] = int64(lo + c.rng.IntN(hi-lo))
	}
	return tensor.Cast(tensor.FromSlice(c.cpu, v, shape...), dt)
}

// same runs f on both devices. Results differ by at most tol of the largest number
// among those of the CPU; 0 asks for the same bits. It runs f twice on the GPU, the
// second time with a few blocks that go through all the work: the bits must not change.
func (c *check) same(name string, tol float64, f func(x []*tensor.Tensor) []*tensor.Tensor, args ...*tensor.Tensor) {
	c.t.Helper()
	want := f(clones(args, c.cpu))
	got := f(clones(args, c.dev))
	grids := c.dev.grids
	c.dev.grids = 3
	again := f(clones(args, c.dev))
	c.dev.grids = grids
	if len(got) != len(want) {
		c.t.Fatalf("%s: %d results, want %d", name, len(got), len(want))
	}
	for i, w := range want {
		if (w == nil) != (got[i] == nil) {
			c.t.Errorf("%s: result %d is there on one device only", name, i)
			continue
		}
		if w == nil {
			continue
		}
		if w.DType() != got[i].DType() || fmt.Sprint(w.Shape()) != fmt.Sprint(got[i].Shape()) {
			c.t.Errorf("%s: result %d is %v, want %v", name, i, got[i], w)
			continue
		}
		a, b, d := values(c.cpu, w), values(c.cpu, got[i]), values(c.cpu, again[i])
		most := 0.0
		for _, v := range a {
			if !math.IsInf(v, 0) && !math.IsNaN(v) {
				most = max(most, math.Abs(v))
			}
		}
		for k := range a {
			if math.Float64bits(b[k]) != math.Float64bits(d[k]) {
				c.t.Errorf("%s: result %d, element %d: %g, then %g", name, i, k, b[k], d[k])
				break
			}
			if a[k] == b[k] || a[k] != a[k] && b[k] != b[k] {
				continue
			}
			if diff := math.Abs(a[k] - b[k]); !(diff <= tol*most) {
				c.t.Errorf("%s: result %d %v, element %d: %g, want %g (%.2g of %g)", name, i, w.Shape(), k, b[k], a[k], diff/most, most)
				break
			}
		}
	}
}

func clones(args []*tensor.Tensor, dev tensor.Device) []*tensor.Tensor {
	out := make([]*tensor.Tensor, len(args))
	for i, a := range args {
		if a != nil {
			out[i] = tensor.New(dev, a.DType(), a.Shape()...)
			tensor.Copy(out[i], a)
		}
	}
	return out
}

func values(cpu tensor.Device, x *tensor.Tensor) []float64 {
	return tensor.ToSlice[float64](tensor.Cast(clones([]*tensor.Tensor{x}, cpu)[0], tensor.Float64))
}

// adamW has torch.optim.AdamW's defaults.
var adamW = tensor.Adam{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 1e-2}

// scalarBinary returns op(v, x) for each element of x.
func scalarBinary(op kernel.BinaryOp, v float64, x *tensor.Tensor) *tensor.Tensor {
	y := tensor.NewLike(x)
	x.Device().BinaryScalar(op, x.DType(), y.Ptr(), x.Ptr(), kernel.Number{Value: v, First: true}, x.Numel())
	runtime.KeepAlive(x)
	return y
}

// rowStat returns op of each row of x.
func rowStat(op kernel.RowOp, x *tensor.Tensor, p float64) *tensor.Tensor {
	y := tensor.New(x.Device(), x.DType().Wide(), x.Dim(0))
	x.Device().RowStat(op, x.DType(), y.Ptr(), x.Ptr(), kernel.Matrix{Rows: x.Dim(0), Cols: x.Dim(1)}, p)
	runtime.KeepAlive(x)
	return y
}

// oneHot returns rows of classes elements, 1 at the index less lo and 0 elsewhere.
func oneHot(index *tensor.Tensor, lo, classes int, dt tensor.DType) *tensor.Tensor {
	y := tensor.Zeros(index.Device(), dt, index.Numel(), classes)
	index.Device().OneHot(dt, y.Ptr(), kernel.Index{DType: index.DType(), At: index.Ptr(), N: index.Numel()}, lo, classes)
	runtime.KeepAlive(index)
	return y
}

// scattered returns src added at index to zeros like x.
func scattered(x *tensor.Tensor, dim int, index, src *tensor.Tensor) *tensor.Tensor {
	y := tensor.ZerosLike(x)
	tensor.ScatterAddTo(y, dim, index, src)
	return y
}

// sumToLast adds up all dimensions of x but the last.
func sumToLast(x *tensor.Tensor) *tensor.Tensor {
	return tensor.Sum(x.Reshape(-1, x.Dim(-1)), []int{0}, false)
}

// one wraps a function of one result.
func one(f func(x []*tensor.Tensor) *tensor.Tensor) func(x []*tensor.Tensor) []*tensor.Tensor {
	return func(x []*tensor.Tensor) []*tensor.Tensor { return []*tensor.Tensor{f(x)} }
}

var (
	floats   = []tensor.DType{tensor.Float32, tensor.Float64}
	integers = []tensor.DType{tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64, tensor.Uint8}
	numbers  = append(append([]tensor.DType(nil), floats...), integers...)
	all      = append(append([]tensor.DType(nil), numbers...), tensor.Bool, tensor.Float16, tensor.BFloat16)
)

// rounding is what a few roundings of dt make.
func rounding(dt tensor.DType) float64 {
	if dt == tensor.Float64 {
		return 1e-13
	}
	return 2e-6
}

func TestElementwise(t *testing.T) {
	c := newCheck(t, openGPU(t, false))
	for _, dt := range numbers {
		isFloat := dt == tensor.Float32 || dt == tensor.Float64
		for _, op := range kernel.UnaryOps() {
			switch op {
			case kernel.OpNeg, kernel.OpAbs, kernel.OpRelu, kernel.OpSquare, kernel.OpSign:
			default:
				if !isFloat {
					continue
				}
			}
			x := c.arg(dt, 700)
			c.same(fmt.Sprint(op, dt), rounding(dt), one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.Unary(op, x[0]) }), x)
			if isFloat {
				c.same(fmt.Sprint(op, "Grad", dt), rounding(dt), one(func(x []*tensor.Tensor) *tensor.Tensor {
					return tensor.UnaryGrad(op, x[1], x[0], tensor.Unary(op, x[0]))
				}), tensor.Unary(kernel.OpAbs, x), c.arg(dt, 700))
				ends := tensor.Cast(tensor.FromSlice(c.cpu, []float64{math.Inf(1), math.Inf(-1), math.NaN(), 100, -100, math.Copysign(0, -1)}, 6), dt)
				c.same(fmt.Sprint(op, dt, " at the ends"), rounding(dt), func(x []*tensor.Tensor) []*tensor.Tensor {
					y := tensor.Unary(op, x[0])
					return []*tensor.Tensor{y, tensor.UnaryGrad(op, x[1], x[0], y)}
				}, ends, tensor.Full(c.cpu, dt, 1, 6))
			}
		}
		for _, op := range kernel.BinaryOps() {
			if !op.Takes(dt) {
				continue
			}
			tol := 0.0
			if op == kernel.OpPow || op == kernel.OpDiv || op == kernel.OpAtan2 {
				tol = rounding(dt)
			}
			name := fmt.Sprint(op, dt)
			f := one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.Binary(op, x[0], x[1]) })
			c.same(name, tol, f, c.arg(dt, 33, 7), c.arg(dt, 33, 7))
			c.same(name+" broadcast", tol, f, c.arg(dt, 3, 1, 5), c.arg(dt, 4, 1))
			c.same(name+" scalar", tol, one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.BinaryScalar(op, x[0], 3) }), c.arg(dt, 300))
			c.same(name+" scalar first", tol, one(func(x []*tensor.Tensor) *tensor.Tensor { return scalarBinary(op, 2, x[0]) }),
				c.arg(dt, 300))
		}
		if dt == tensor.Int64 {
			large := tensor.FromSlice(c.cpu, []int64{1<<53 + 1, -1<<53 - 1, math.MaxInt64, math.MinInt64}, 4)
			c.same("clamp of large integers", 0, one(func(x []*tensor.Tensor) *tensor.Tensor {
				return tensor.Compare(kernel.OpEq, tensor.Clamp(x[0], -1<<53, 1<<53), x[1])
			}), large, tensor.FromSlice(c.cpu, []int64{1 << 53, -1 << 53, 1 << 53, -1 << 53}, 4))
		}
		c.same(fmt.Sprint("clamp", dt), 0, one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.Clamp(x[0], 0, 3) }), c.arg(dt, 300))
	}
	for _, dt := range floats {
		c.same(fmt.Sprint("clampgrad", dt), 0, one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.ClampGrad(x[0], x[1], -1, 0.5) }),
			c.arg(dt, 300), c.arg(dt, 300))
		c.same(fmt.Sprint("leaky", dt), 0, one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.Leaky(x[0], x[1], 0.5) }),
			c.arg(dt, 300), c.arg(dt, 300))
		c.same(fmt.Sprint("axpy", dt), rounding(dt), one(func(x []*tensor.Tensor) *tensor.Tensor {
			tensor.AddScaledTo(x[0], 0.3, x[1])
			return x[0]
		}), c.arg(dt, 300), c.arg(dt, 300))
	}
	for _, dt := range append(numbers, tensor.Bool) {
		for _, op := range kernel.CompareOps() {
			c.same(fmt.Sprint(op, dt), 0, one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.Compare(op, x[0], x[1]) }), c.arg(dt, 9, 8),
				c.arg(dt, 8))
		}
	}
}

func TestMoves(t *testing.T) {
	c := newCheck(t, openGPU(t, false))
	for _, dt := range all {
		name := fmt.Sprint(dt)
		for _, to := range all {
			if to != dt {
				c.same(name+" to "+fmt.Sprint(to), 0, one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.Cast(x[0], to) }),
					tensor.Cast(c.ids(tensor.Int64, 0, 100, 400), dt))
			}
		}
		x := c.arg(tensor.Float32, 5, 40, 37)
		x = tensor.Cast(x, dt)
		for _, dims := range [][]int{{1, 0, 2}, {0, 2, 1}, {2, 1, 0}, {2, 0, 1}} {
			c.same(fmt.Sprint(name, " permute ", dims), 0, one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.Permute(x[0], dims...) }), x)
		}
		c.same(name+" expand", 0, one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.Expand(x[0], 3, 40, 37) }),
			tensor.Cast(c.arg(tensor.Float32, 40, 1), dt))
		c.same(name+" narrow", 0, one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.Narrow(x[0], 1, 4, 16) }), x)
		c.same(name+" where", 0, one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.Where(x[0], x[1], x[2]) }), c.arg(tensor.Bool, 6, 1),
			tensor.Cast(c.arg(tensor.Float32, 6, 5), dt), tensor.Cast(c.arg(tensor.Float32, 5), dt))
		c.same(name+" full", 0, one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.Full(x[0].Device(), dt, 3, 77) }), x)
		c.same(name+" zeros", 0, one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.Zeros(x[0].Device(), dt, 77) }), x)
	}
	for _, dt := range numbers {
		c.same(fmt.Sprint("arange", dt), 0, one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.Arange(x[0].Device(), dt, 5, 70) }),
			c.arg(dt, 1))
	}
}

func TestHalves(t *testing.T) {
	c := newCheck(t, openGPU(t, false))
	bits := make([]int16, 1<<16)
	for i := range bits {
		bits[i] = int16(i)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	wide := make([]float32, 1<<16)
	for i := range wide {
		wide[i] = math.Float32frombits(rng.Uint32())
	}
	for _, dt := range []tensor.DType{tensor.Float16, tensor.BFloat16} {
		// Every half, by way of its bits, and many floats: NaNs compare as NaNs.
		half := tensor.New(c.cpu, dt, len(bits))
		c.cpu.FromHost(half.Ptr(), tensor.FromSlice(c.cpu, bits, len(bits)).Ptr(), half.Bytes())
		c.same(fmt.Sprint(dt, " widened"), 0, one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.Cast(x[0], tensor.Float32) }), half)
		c.same(fmt.Sprint(dt, " narrowed"), 0, one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.Cast(x[0], dt) }),
			tensor.FromSlice(c.cpu, wide, len(wide)))
	}
}

func TestRandomNumbers(t *testing.T) {
	c := newCheck(t, openGPU(t, false))
	key := tensor.Key{Seed: 12345678901, Stream: 77}
	for _, dt := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.Float16, tensor.BFloat16} {
		global, offset := []int{100, 90}, []int{33, 41}
		c.same(fmt.Sprint("uniform", dt), 0, one(func(x []*tensor.Tensor) *tensor.Tensor {
			y := tensor.New(x[0].Device(), dt, 50, 49)
			tensor.FillUniform(y, key, -3, 2, global, offset)
			return y
		}), c.arg(dt, 1))
		for _, at := range []int{0, 1, 3, 7} { // parts of the blocks of four that the generator makes
			c.same(fmt.Sprint("rows from ", at, dt), 0, func(x []*tensor.Tensor) []*tensor.Tensor {
				rows, column := tensor.New(x[0].Device(), dt, 3, 1, 2*at+1), tensor.New(x[0].Device(), dt, 5, 1)
				tensor.FillNormal(rows, key, 0, 1, []int{4, 3, 22}, []int{1, 2, at})
				tensor.FillUniform(column, key, 0, 1, []int{6, 11}, []int{1, at})
				return []*tensor.Tensor{rows, column}
			}, c.arg(dt, 1))
		}
		c.same(fmt.Sprint("uniform below 1", dt), 0, one(func(x []*tensor.Tensor) *tensor.Tensor { // some of a half would be rounded to 1
			y := tensor.New(x[0].Device(), dt, 20000)
			tensor.FillUniform(y, key, 0, 1, nil, nil)
			return y
		}), c.arg(dt, 1))
		c.same(fmt.Sprint("normal", dt), 0, one(func(x []*tensor.Tensor) *tensor.Tensor {
			y := tensor.New(x[0].Device(), dt, 50, 49)
			tensor.FillNormal(y, key, 0.1, 2.3, global, offset)
			return y
		}), c.arg(dt, 1))
	}
	line := kernel.Loop{N: 1, Size: [kernel.MaxDims]int{500}, A: [kernel.MaxDims]int{1}, B: [kernel.MaxDims]int{1}}
	for _, op := range kernel.RandomOps() {
		c.same(fmt.Sprint(op), 0, one(func(x []*tensor.Tensor) *tensor.Tensor {
			y := tensor.New(x[0].Device(), tensor.Float32, 500)
			y.Device().Random(kernel.RandomNumbers{Op: op, DType: tensor.Float32, Key: key, First: 3, A: 0.2, B: 0.7, Least: 0.1, Most: 0.8},
				y.Ptr(), line)
			runtime.KeepAlive(y)
			return y
		}), c.arg(tensor.Float32, 1))
	}
	c.same("bernoulli", 0, one(func(x []*tensor.Tensor) *tensor.Tensor {
		y := tensor.New(x[0].Device(), tensor.Bool, 1000)
		tensor.FillBernoulli(y, key, 0.3, nil, nil)
		return y
	}), c.arg(tensor.Bool, 1))
}
