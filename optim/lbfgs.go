package optim

import (
	"cmp"
	"fmt"
	"iter"
	"math"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// An LBFGSConfig sets up LBFGS. The zero value has torch's constants and no line search.
type LBFGSConfig struct {
	Iterations      int     // of a step, at most; 0 stands for 20
	Evaluations     int     // of a step, after which no iteration begins; 0 stands for 5/4 of Iterations
	ToleranceGrad   float64 // a step ends when no element of the gradient is larger; 0 stands for 1e-7
	ToleranceChange float64 // a step ends when the loss, or every element of the parameters, changes by less; 0 stands for 1e-9
	History         int     // how many iterations are remembered; 0 stands for 100
	StrongWolfe     bool    // search along each direction for a point that satisfies the strong Wolfe conditions
}

// LBFGS minimizes a function by the limited-memory method of Broyden, Fletcher, Goldfarb and Shanno, as torch.optim.LBFGS
// (Nocedal and Wright, Numerical Optimization, algorithms 7.5, 3.5 and 3.6). It evaluates the function several times a
// step, so it is no Optimizer: its Step takes a closure.
//
//	opt := optim.NewLBFGS(params, optim.LBFGSConfig{StrongWolfe: true})
//	loss, err := opt.Step(1, func() (*dtensor.Tensor, []dtensor.Grad, error) {
//		return dtensor.ValueAndGrad(ctx, forward, params...)
//	})
//
// It is made for functions without randomness: all data in each evaluation, no dropout. Its inner products are sums over all
// elements of all parameters, an element that several ranks hold counting once; each makes one collective of a number if
// a parameter is sharded. It takes 2·History + 4 times the memory of the parameters.
type LBFGS struct {
	base
	config LBFGSConfig

	direction, last []*dtensor.Tensor   // of the last iteration: where to, and the gradient before
	moves, turns    [][]*dtensor.Tensor // a ring of the iterations' changes of the parameters, and of the gradient
	numbers         *tensor.Tensor      // in host memory; see the constants
	numbersState    *dtensor.Tensor
}

// The numbers of an LBFGS. From numberRho on they are those of the ring: 1 over the product of a move and its turn.
const (
	numberIterations = iota // all so far
	numberKept              // how many iterations the ring has had
	numberScale             // of the identity that approximates the inverse Hessian
	numberRate              // how far the last iteration went
	numberRho
)

// NewLBFGS returns an LBFGS for params, float32 or float64, on one mesh. It throws an error that names the field if the
// configuration makes no sense.
func NewLBFGS(params []*dtensor.Tensor, c LBFGSConfig) *LBFGS {
	const op = "NewLBFGS"
	c.Iterations, c.History = cmp.Or(c.Iterations, 20), cmp.Or(c.History, 100)
	c.Evaluations = cmp.Or(c.Evaluations, c.Iterations*5/4)
	c.ToleranceGrad, c.ToleranceChange = cmp.Or(c.ToleranceGrad, 1e-7), cmp.Or(c.ToleranceChange, 1e-9)
	atLeastZero(op, "ToleranceGrad", c.ToleranceGrad)
	atLeastZero(op, "ToleranceChange", c.ToleranceChange)
	if min(c.Iterations, c.Evaluations, c.History) < 1 {
		fault.Throw(fmt.Errorf("optim: %s: Iterations is %d, Evaluations %d and History %d; give positive numbers",
			op, c.Iterations, c.Evaluations, c.History))
	}
	l := &LBFGS{base: newBase("LBFGS", params, true), config: c}
	for i, p := range params {
		switch {
		case p.DType().Narrow():
			fault.Throw(fmt.Errorf("optim: %s: parameter %d is %v; Cast it to float32: a line search needs exact steps", op, i, p))
		case p.Mesh() != params[0].Mesh():
			fault.Throw(fmt.Errorf("optim: %s: parameter %d is on mesh %v and parameter 0 on %v; give parameters of one mesh",
				op, i, p.Mesh(), params[0].Mesh()))
		}
	}
	l.steps = nil // iterations are counted in numbers
	if len(params) == 0 {
		return l
	}
	mesh := params[0].Mesh()
	l.direction, l.last = states(params), states(params)
	for range c.History {
		l.moves, l.turns = append(l.moves, states(params)), append(l.turns, states(params))
	}
	l.numbers = tensor.Zeros(tensor.NewCPU(nil), tensor.Float64, numberRho+c.History).Persist()
	l.numbersState = mesh.Wrap("optimizer state", l.numbers, nil, false, l.numbers.Shape(), mesh.Every(layout.Replicate())...)
	return l
}

// State lists the direction and gradient of the last iteration, "direction" and "last", the changes that are remembered,
// "move0", "turn0", and so on, and "numbers". If it is copied to another LBFGS of the same configuration, that one goes on
// as this one would.
func (l *LBFGS) State() iter.Seq2[string, *dtensor.Tensor] {
	kinds := []kind{{"direction", l.direction}, {"last", l.last}, {"numbers", []*dtensor.Tensor{l.numbersState}}}
	for k := range l.moves {
		kinds = append(kinds, kind{fmt.Sprint("move", k), l.moves[k]}, kind{fmt.Sprint("turn", k), l.turns[k]})
	}
	return l.list(kinds...)
}

// A Closure evaluates the function that LBFGS minimizes: it returns what dtensor.ValueAndGrad returns for the parameters as
// they are.
type Closure func() (loss *dtensor.Tensor, grads []dtensor.Grad, err error)

// Step minimizes the function for some iterations and returns its value from before. lr is the length of an iteration's
// move, in units of the direction; a line search begins there. Step evaluates the function as often on every rank, and does
// nothing on a rank outside the mesh. After an error the parameters may have been moved.
func (l *LBFGS) Step(lr float64, f Closure) (loss float64, err error) {
	switch {
	case f == nil:
		return 0, fault.Located(fmt.Errorf("optim: LBFGS.Step: the closure is nil; give the one that evaluates the function"))
	case !validRate(lr):
		return 0, fault.Located(fmt.Errorf("optim: LBFGS.Step: "+badRate, lr))
	case len(l.params) == 0 || !l.params[0].Mesh().Inside():
		return 0, nil
	}
	mesh := l.params[0].Mesh()
	defer mesh.Span(l.name).End()
	err = dtensor.Try(mesh.Context(), mesh, func() { loss = l.minimize(lr, f) })
	return loss, err
}

// minimize is Step, which throws.
func (l *LBFGS) minimize(lr float64, f Closure) float64 {
	dtensor.CheckSame("optim: LBFGS.Step", l.params, func(i int) string {
		return fmt.Sprintf("parameter %d, %s %v", i, l.params[i].DType(), l.params[i].Layout())
	})
	o, n := l.config, tensor.Data[float64](l.numbers)
	now := l.evaluate(f)
	first, evaluations := now.loss, 1
	if l.largest(now.grad) <= o.ToleranceGrad {
		return first
	}
	direction, last := locals(l.direction), locals(l.last)
	for i := 1; ; i++ {
		n[numberIterations]++
		if n[numberIterations] == 1 {
			n[numberScale] = 1
		} else {
			l.remember(now.grad)
		}
		l.aim(now.grad)
		copyTo(last, now.grad)
		before := now.loss
		t := lr
		if n[numberIterations] == 1 {
			t *= min(1, 1/l.sumOfSizes(now.grad))
		}
		n[numberRate] = t
		slope := l.dot(now.grad, direction)
		if slope > -o.ToleranceChange {
			return first
		}
		switch {
		case o.StrongWolfe:
			var made int
			now, made = l.search(f, t, now, slope)
			t, evaluations = now.at, evaluations+made
			n[numberRate] = t
		case i < o.Iterations:
			l.move(locals(l.params), t)
			now = l.evaluate(f)
			evaluations++
		default:
			l.move(locals(l.params), t) // nobody asks for the value there
			return first
		}
		switch {
		case i >= o.Iterations || evaluations >= o.Evaluations,
			l.largest(now.grad) <= o.ToleranceGrad,
			l.largest(direction)*math.Abs(t) <= o.ToleranceChange,
			math.Abs(now.loss-before) < o.ToleranceChange:
			return first
		}
	}
}

// remember adds the last iteration to the ring, if the function curves upwards along it.
func (l *LBFGS) remember(grad vector) {
	n := tensor.Data[float64](l.numbers)
	slot := int(n[numberKept]) % l.config.History
	turn, move := copyOf(grad), copyOf(locals(l.direction))
	for i, last := range locals(l.last) {
		tensor.AddScaledTo(turn[i], -1, last)
		tensor.ScaleTo(move[i], n[numberRate])
	}
	product := l.dot(turn, move)
	if product <= 1e-10 {
		return
	}
	copyTo(locals(l.turns[slot]), turn)
	copyTo(locals(l.moves[slot]), move)
	n[numberKept]++
	n[numberRho+slot] = 1 / product
	n[numberScale] = product / l.dot(turn, turn)
}

// aim sets the direction: the approximate inverse Hessian times -grad, by the two loops of algorithm 7.4.
func (l *LBFGS) aim(grad vector) {
	n, d := tensor.Data[float64](l.numbers), locals(l.direction)
	copyTo(d, grad)
	for _, x := range d {
		tensor.ScaleTo(x, -1)
	}
	end, history := int(n[numberKept]), l.config.History
	begin := max(0, end-history)
	alpha := make([]float64, history)
	for k := end - 1; k >= begin; k-- {
		slot := k % history
		alpha[slot] = l.dot(locals(l.moves[slot]), d) * n[numberRho+slot]
		addScaled(d, -alpha[slot], locals(l.turns[slot]))
	}
	for _, x := range d {
		tensor.ScaleTo(x, n[numberScale])
	}
	for k := begin; k < end; k++ {
		slot := k % history
		beta := l.dot(locals(l.turns[slot]), d) * n[numberRho+slot]
		addScaled(d, alpha[slot]-beta, locals(l.moves[slot]))
	}
}

// A point is a place on the line of a search: how far along it is, and the function there.
type point struct {
	at, loss, slope float64
	grad            vector
}

// evaluate calls the closure.
func (l *LBFGS) evaluate(f Closure) (p point) {
	mesh := l.params[0].Mesh()
	err := dtensor.Try(mesh.Context(), mesh, func() {
		loss, grads, err := f()
		if err != nil {
			fault.Throw(err)
		}
		if len(grads) != len(l.params) {
			fault.Throw(fmt.Errorf("optim: LBFGS.Step: %d gradients for %d parameters; pass what ValueAndGrad returned for the same list",
				len(grads), len(l.params)))
		}
		for i, g := range grads {
			own := tensor.ZerosLike(l.params[i].Local()).Persist()
			if d := g.Dense(); d != nil {
				l.checkDense(i, l.params[i], d)
				tensor.Copy(own, d.Local())
			}
			p.grad = append(p.grad, own)
		}
		p.loss = loss.Item()
	})
	if err != nil {
		fault.Throw(err)
	}
	return p
}

// move moves the parameters from x along the direction.
func (l *LBFGS) move(x vector, t float64) {
	params := locals(l.params)
	for i, d := range locals(l.direction) {
		tensor.Copy(params[i], x[i])
		tensor.AddScaledTo(params[i], t, d)
	}
}

// A vector is this rank's part of a number for each element of the parameters.
type vector []*tensor.Tensor

func locals(list []*dtensor.Tensor) (v vector) {
	for _, x := range list {
		v = append(v, x.Local())
	}
	return v
}

func copyOf(a vector) (v vector) {
	for _, x := range a {
		v = append(v, tensor.Clone(x))
	}
	return v
}

func copyTo(dst, src vector) {
	for i, x := range src {
		tensor.Copy(dst[i], x)
	}
}

func addScaled(dst vector, scale float64, src vector) {
	for i, x := range src {
		tensor.AddScaledTo(dst[i], scale, x)
	}
}

// dot returns the inner product of two vectors.
func (l *LBFGS) dot(a, b vector) float64 {
	return l.sum(func(i int) *tensor.Tensor { return tensor.Binary(kernel.OpMul, a[i], b[i]) })
}

// sumOfSizes returns Σ|x|.
func (l *LBFGS) sumOfSizes(a vector) float64 {
	return l.sum(func(i int) *tensor.Tensor { return tensor.Unary(kernel.OpAbs, a[i]) })
}

// sum returns the sum of all elements of a vector, whose part of each parameter of gives.
func (l *LBFGS) sum(of func(i int) *tensor.Tensor) (total float64) {
	mesh := l.params[0].Mesh()
	if !mesh.SameBits() {
		return l.overRanks(comm.Sum, func(i int) float64 { return tensor.Sum(of(i), nil, false).Item() })
	}
	scope := mesh.Device().Open()
	defer scope.Close()
	for i, p := range l.params {
		total += mesh.Wrap(l.name, of(i), nil, false, p.Shape(), p.Placements()...).Sum(nil, false).Item()
	}
	return total
}

// largest returns the largest |x|, NaN if there is one.
func (l *LBFGS) largest(a vector) float64 {
	return l.overRanks(comm.Max, func(i int) float64 {
		if a[i].Numel() == 0 {
			return 0
		}
		return tensor.Reduce(kernel.OpAmax, tensor.Unary(kernel.OpAbs, a[i]), nil, false).Item()
	})
}

// overRanks combines a number of each parameter, and over the ranks that have different parts of them.
func (l *LBFGS) overRanks(op comm.Op, of func(i int) float64) float64 {
	mesh := l.params[0].Mesh()
	scope := mesh.Device().Open()
	defer scope.Close()
	var pieces []piece
	for i, p := range l.params {
		pieces = append(pieces, newPiece(i, p, p.Local()))
	}
	axes, total := shardAxes(mesh, pieces), 0.0
	for i, p := range pieces {
		switch {
		case op == comm.Max:
			total = max(total, of(i))
		case isFirst(mesh, axes&^p.shards):
			total += of(i)
		}
	}
	if names := axisNames(mesh, axes); len(names) > 0 {
		all := []float64{total}
		allReduce(mesh, mesh.Group(names...), op, comm.Call{Cause: l.name}, all)
		total = all[0]
	}
	return total
}
