package dtensor_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

var axisNames = []string{"a", "b", "c"}

// TestMain has garbage collected less often than users' programs do: most tests make many small tensors and plans that
// are soon garbage, and none measures memory that the collector keeps.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	m.Run()
}

// onMesh runs f on every rank of a mesh of the given shape.
func onMesh(t testing.TB, shape []int, f func(ctx context.Context, m *dtensor.Mesh) error) {
	t.Helper()
	n := 1
	var axes []dtensor.Axis
	for i, size := range shape {
		axes = append(axes, dtensor.Axis{Name: axisNames[i], Size: size})
		n *= size
	}
	commtest.Run(t, n, func(ctx context.Context, world *comm.Comm) error {
		m, err := dtensor.NewMesh(world, axes...)
		if err != nil {
			return err
		}
		return f(ctx, m)
	})
}

// maskRows is the number of rows of the tables that MaskP inputs come from.
const maskRows = 5

// options are the placements that a tensor of the shape is tried with on one axis; ints
// says that it holds indices.
func options(shape []int, ints bool) []layout.Placement {
	if ints {
		return optionsOf(shape, tensor.Int64)
	}
	return optionsOf(shape, tensor.Float32)
}

// optionsOf are the placements that a tensor of the shape and type is tried with on one
// axis. A product of integers is one of the reductions that every type but Bool has.
func optionsOf(shape []int, dt tensor.DType) []layout.Placement {
	list := []layout.Placement{layout.Replicate()}
	for d := range shape {
		list = append(list, layout.Shard(d))
	}
	if len(shape) > 0 {
		list = append(list, layout.ShardCyclic())
	}
	if dt == tensor.Bool {
		return append(list, layout.Partial(layout.Max), layout.Partial(layout.Min))
	}
	list = append(list, layout.Partial(layout.Sum), layout.Partial(layout.Max), layout.Partial(layout.Min))
	if dt.Float() {
		list = append(list, layout.Partial(layout.Avg), layout.Partial(layout.Prod))
		if len(shape) > 0 {
			list = append(list, layout.MaskPartial(append([]int{maskRows}, shape[1:]...), 0))
		}
	}
	return list
}

// placementsOf returns the k-th combination of options for the axes.
func placementsOf(m *dtensor.Mesh, list []layout.Placement, k int) []layout.Placement {
	p := make([]layout.Placement, len(m.Axes()))
	for i := range p {
		p[i] = list[k%len(list)]
		k /= len(list)
	}
	return p
}

// valid reports whether a tensor can have these placements: reductions that
// cannot be exchanged do not mix, and rows of a table are not partial besides.
func valid(m *dtensor.Mesh, shape []int, p []layout.Placement) bool {
	axes, err := layout.NewAxes(m.Axes()...)
	if err != nil {
		return false
	}
	isMask := func(p layout.Placement) bool { return p.IsMask() }
	if slices.ContainsFunc(p, isMask) && slices.ContainsFunc(p, func(p layout.Placement) bool { return p.IsPartial() && !p.IsMask() }) {
		return false
	}
	_, err = layout.New(axes, shape, p...)
	return err == nil
}

// place returns a replicated tensor in another layout. Rows of a MaskP one come
// from a table; those that a rank does not own hold garbage. Whether the mask
// knows who owns which row depends on salt.
func place(m *dtensor.Mesh, whole *dtensor.Tensor, p []layout.Placement, salt int) *dtensor.Tensor {
	if !slices.ContainsFunc(p, layout.Placement.IsMask) {
		return scattered(m, whole.Redistribute(p...))
	}
	rows := whole.Dim(0)
	ids, dense := make([]layout.Placement, len(p)), slices.Clone(p)
	for i := range p {
		if d, ok := p[i].Dim(); ok && d == 0 {
			ids[i] = p[i]
		}
		if p[i].IsMask() {
			ids[i], dense[i] = p[i], layout.Replicate()
		}
	}
	replicated := make([]layout.Placement, len(p))
	numbers := dtensor.Uniform(m, dtensor.Key{Seed: 11, Stream: uint64(salt)}, 0, maskRows, []int{rows}, replicated...)
	mask := numbers.Cast(tensor.Int64).Redistribute(ids...).Mask()
	if salt%2 == 0 {
		mask = dtensor.NewMask(mask.Masked(), 0)
	}
	local := whole.Redistribute(dense...).Local()
	garbage := mask.Masked()
	if local.Numel() > 0 {
		each := make([]int, local.NDim())
		for d := range each {
			each[d] = 1
		}
		each[0] = local.Dim(0)
		local = tensor.MaskedFill(local, garbage.Reshape(each...), 1e3)
	}
	return m.Wrap("place", local, mask, false, whole.Shape(), p...)
}

// scattered returns t with other parts where it is Partial: the first rank of an axis
// adds 1 to its part of a sum of integers and the last subtracts it; of a product of
// fractions one doubles and the other halves; of a maximum or a minimum all but the first hold something
// less or more in every second element, integers and Bool the least or the most there is.
func scattered(m *dtensor.Mesh, t *dtensor.Tensor) *dtensor.Tensor {
	local, dt := t.Local(), t.DType()
	if dt == tensor.Float16 { // has no arithmetic
		local = tensor.Cast(local, tensor.Float32)
	}
	for axis, p := range t.Placements() {
		op, partial := p.Op()
		size, at := m.Axes()[axis].Size, m.Coord()[axis]
		if !partial || size == 1 || local.Numel() == 0 {
			continue
		}
		first, last := at == 0, at == size-1
		switch op {
		case layout.Sum:
			if dt.Int() && first {
				local = tensor.AddScalar(local, 1)
			} else if dt.Int() && last {
				local = tensor.AddScalar(local, -1)
			}
		case layout.Prod:
			if dt.Float() && first {
				local = tensor.MulScalar(local, 2)
			} else if dt.Float() && last {
				local = tensor.MulScalar(local, 0.5)
			}
		case layout.Min, layout.Max:
			if first {
				continue
			}
			other := local
			if dt.Float() {
				by := 1.0
				if op == layout.Max {
					by = -1
				}
				other = tensor.AddScalar(local, by)
			} else {
				other = tensor.Full(m.Device(), local.DType(), extremes(dt, op), local.Shape()...)
			}
			every := make([]float32, local.Numel())
			for i := 1; i < len(every); i += 2 {
				every[i] = 1
			}
			odd := tensor.CompareScalar(kernel.OpNe, tensor.FromSlice(m.Device(), every, local.Shape()...), 0)
			local = tensor.Where(odd, other, local)
		}
	}
	if local == t.Local() {
		return t
	}
	return m.Wrap("scattered", tensor.Cast(local, dt), nil, false, t.Shape(), t.Placements()...)
}

// extremes returns the least value of an integer type or Bool for a maximum, the largest
// for a minimum; those of int64 that float64 has.
func extremes(dt tensor.DType, op layout.ReduceOp) float64 {
	bits := 8 * dt.Size()
	switch {
	case op == layout.Max && (dt == tensor.Uint8 || dt == tensor.Bool):
		return 0
	case op == layout.Max:
		return -math.Ldexp(1, bits-1)
	case dt == tensor.Bool:
		return 1
	case dt == tensor.Uint8:
		return 255
	case dt == tensor.Int64:
		return math.Ldexp(1, bits-1) - 1024
	}
	return math.Ldexp(1, bits-1) - 1
}

// An opCase is an operator with the shapes it is tried on.
type opCase struct {
	name   string
	shapes [][][]int // alternatives, each with one shape an input
	ints   []int     // for each input: 0 a number, n an integer below n
	f      func(in []*dtensor.Tensor) *dtensor.Tensor
	nograd bool
	tol    float64      // 0: 2e-5
	dt     tensor.DType // of the numbers; none: float32
}

// of returns the case for another type. In half precision sums whose parts lie on several
// ranks are rounded once a part.
func (c opCase) of(dt tensor.DType) opCase {
	c.name += " of " + dt.String()
	if c.dt = dt; dt.Size() == 2 && dt.Float() {
		c.tol = 0x1p-5
	}
	return c
}

// check compares the operator on every layout of its inputs with itself on
// replicated ones, values and gradients.
func (c *opCase) check(ctx context.Context, m *dtensor.Mesh) error {
	for k, shapes := range c.shapes {
		if err := c.checkShapes(ctx, m, shapes); err != nil {
			return fmt.Errorf("%s, shapes %d %v, mesh %v: %w", c.name, k, shapes, m, err)
		}
	}
	return nil
}

func (c *opCase) checkShapes(ctx context.Context, m *dtensor.Mesh, shapes [][]int) error {
	whole := make([]*dtensor.Tensor, len(shapes))
	replicated := make([]layout.Placement, len(m.Axes()))
	for i, s := range shapes {
		whole[i] = c.input(m, i, s, replicated)
	}
	want, err := c.run(ctx, whole)
	if err != nil {
		return fmt.Errorf("replicated: %w", err)
	}
	rng := rand.New(rand.NewPCG(1, uint64(len(shapes))))
	for trial, p := range c.trials(m, shapes, rng) {
		if err := c.tryLayout(ctx, m, whole, p, trial, want); err != nil {
			return fmt.Errorf("trial %d: %w", trial, err)
		}
	}
	return nil
}

// tryLayout compares the operator on inputs laid out so with what it gives for
// the whole ones: values, gradients, and that it communicates what is planned.
func (c *opCase) tryLayout(ctx context.Context, m *dtensor.Mesh, whole []*dtensor.Tensor, p [][]layout.Placement, salt int,
	want *answer) error {
	in := make([]*dtensor.Tensor, len(whole))
	for i := range in {
		in[i] = place(m, whole[i], p[i], salt)
	}
	var got *answer
	err := accounted(m, func() (err error) { got, err = c.run(ctx, in); return err })
	if err != nil {
		return fmt.Errorf("%v: %w", in, err)
	}
	if err := c.same(ctx, got.out, want.out); err != nil {
		return fmt.Errorf("%v → %v: %w", in, got.out, err)
	}
	for i, g := range got.grads {
		if g.Dense() == nil {
			continue
		}
		if err := gradLayout(in[i], g.Dense()); err != nil {
			return fmt.Errorf("%v: gradient %d: %w", in, i, err)
		}
		if err := c.same(ctx, g.Dense(), want.grads[i].Dense()); err != nil {
			return fmt.Errorf("%v: gradient %d: %w", in, i, err)
		}
	}
	return nil
}

// gradLayout checks that a gradient has its parameter's layout.
func gradLayout(p, g *dtensor.Tensor) error {
	for axis, its := range g.Placements() {
		want := p.Placements()[axis]
		if !want.IsShard() {
			want = layout.Replicate()
		}
		if its != want {
			return fmt.Errorf("its layout is %v, the parameter's %v", g, p)
		}
	}
	return nil
}

// typeOf returns the type of input i.
func (c *opCase) typeOf(i int) tensor.DType {
	switch {
	case i < len(c.ints) && c.ints[i] > 0:
		return tensor.Int64
	case !c.dt.Valid():
		return tensor.Float32
	}
	return c.dt
}

// input makes input i: the same numbers in any layout.
func (c *opCase) input(m *dtensor.Mesh, i int, shape []int, p []layout.Placement) *dtensor.Tensor {
	if i < len(c.ints) && c.ints[i] > 0 {
		return dtensor.Uniform(m, dtensor.Key{Seed: 7, Stream: uint64(i)}, 0, float64(c.ints[i]), shape, p...).Cast(tensor.Int64)
	}
	x := dtensor.Normal(m, dtensor.Key{Seed: 7, Stream: uint64(i)}, 0, 1, shape, p...)
	switch {
	case !c.dt.Valid():
		return x
	case c.dt == tensor.Bool:
		return x.CompareScalar(kernel.OpGt, 0)
	case c.dt == tensor.Uint8:
		return x.Abs().Scale(3).Cast(c.dt)
	case c.dt.Int():
		return x.Scale(3).Cast(c.dt)
	}
	return x.Cast(c.dt)
}

// layouts has what layoutsOf found: all ranks ask for the same, and most operators.
var layouts sync.Map

// layoutsOf returns the combinations of options for a tensor of the shape and type; nil is no layout of it. They must
// not be modified.
func layoutsOf(m *dtensor.Mesh, shape []int, dt tensor.DType) [][]layout.Placement {
	key := fmt.Sprint(m.Axes(), shape, dt)
	if list, ok := layouts.Load(key); ok {
		return list.([][]layout.Placement)
	}
	opts := optionsOf(shape, dt)
	count := 1
	for range m.Axes() {
		count *= len(opts)
	}
	list := make([][]layout.Placement, count)
	for k := range list {
		if p := placementsOf(m, opts, k); valid(m, shape, p) {
			list[k] = p
		}
	}
	layouts.Store(key, list)
	return list
}

// trials lists the layouts to try: every one of each input with the others
// replicated; on a mesh of one axis those of every pair of inputs; and some
// other combinations. Where there are many it is a sample of these, unless
// -dtensor.full is given.
func (c *opCase) trials(m *dtensor.Mesh, shapes [][]int, rng *rand.Rand) [][][]layout.Placement {
	laid := make([][][]layout.Placement, len(shapes))
	count := make([]int, len(shapes))
	for i, s := range shapes {
		laid[i] = layoutsOf(m, s, c.typeOf(i))
		count[i] = len(laid[i])
	}
	var list [][][]layout.Placement
	add := func(k []int) {
		p := make([][]layout.Placement, len(shapes))
		for i := range p {
			if p[i] = laid[i][k[i]]; p[i] == nil {
				return
			}
		}
		list = append(list, p)
	}
	sample := func() {
		if *fullTime == 0 && len(list) > most {
			rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			list = list[:most]
		}
	}
	for i := range shapes {
		k := make([]int, len(shapes))
		for k[i] = range count[i] {
			add(k)
		}
	}
	sample()
	singles := list
	list = nil
	if len(m.Axes()) == 1 {
		for i := range shapes {
			for j := range i {
				k := make([]int, len(shapes))
				for n := range count[i] * count[j] {
					k[i], k[j] = n%count[i], n/count[i]
					add(k)
				}
			}
		}
	} else if len(shapes) > 1 {
		for range most {
			k := make([]int, len(shapes))
			for i := range k {
				k[i] = rng.IntN(count[i])
			}
			add(k)
		}
	}
	sample()
	return slices.Concat(singles, list)
}

// An answer is a result and the gradients of the inputs.
type answer struct {
	out   *dtensor.Tensor
	grads []dtensor.Grad
}

// run computes the operator and, unless it has none, the gradients of the sum
// of its result times fixed weights.
func (c *opCase) run(ctx context.Context, in []*dtensor.Tensor) (*answer, error) {
	a := &answer{grads: make([]dtensor.Grad, len(in))}
	m := in[0].Mesh()
	if err := dtensor.Try(ctx, m, func() { a.out = c.f(in); dtensor.Keep(a.out) }); err != nil || c.nograd {
		return a, err
	}
	var params []*dtensor.Tensor
	var at []int
	for i, t := range in {
		if t.DType().Float() {
			params, at = append(params, t), append(at, i)
		}
	}
	if len(params) == 0 {
		return a, nil
	}
	_, g, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		y := c.f(in)
		if y.DType() == tensor.Float16 { // has no arithmetic
			y = y.Cast(tensor.Float32)
		}
		w := dtensor.Uniform(m, dtensor.Key{Seed: 3}, -2, 2, y.Shape(), make([]layout.Placement, len(m.Axes()))...) // made sooner than Normal
		return y.Mul(w.Cast(y.DType())).Sum(nil, false)
	}, params...)
	if err != nil {
		return nil, fmt.Errorf("ValueAndGrad: %w", err)
	}
	for i, k := range at {
		a.grads[k] = g[i]
	}
	return a, nil
}

// same compares two tensors as wholes.
func (c *opCase) same(ctx context.Context, x, y *dtensor.Tensor) (err error) {
	if thrown := dtensor.Try(ctx, x.Mesh(), func() { err = c.equal(x.Full(), y.Full()) }); thrown != nil {
		return thrown
	}
	return err
}

func (c *opCase) equal(got, want *tensor.Tensor) error {
	tol := c.tol
	if tol == 0 {
		tol = 2e-5
	}
	if !slices.Equal(got.Shape(), want.Shape()) || got.DType() != want.DType() {
		return fmt.Errorf("got %v%v, want %v%v", got.DType(), got.Shape(), want.DType(), want.Shape())
	}
	a, b := tensor.ToSlice[float64](tensor.Cast(got, tensor.Float64)), tensor.ToSlice[float64](tensor.Cast(want, tensor.Float64))
	for i := range a {
		if d := math.Abs(a[i] - b[i]); d > tol*(1+math.Abs(b[i])) || math.IsNaN(a[i]) != math.IsNaN(b[i]) {
			return fmt.Errorf("element %d is %v, want %v (got %v, want %v)", i, a[i], b[i], got, want)
		}
	}
	return nil
}

// failf throws: what a test says inside Try.
func failf(format string, args ...any) { fault.Throw(fmt.Errorf(format, args...)) }
