package loss

import (
	"fmt"
	"math"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// SampleOptions say how to draw classes.
type SampleOptions struct {
	// Key chooses the random numbers: use another for each call.
	Key dtensor.Key
	// Temperature divides the logits; 0: 1. For the largest logit use Argmax.
	Temperature float64
	// TopK draws only among the TopK classes with the largest logits; 0: among all. Of
	// equal logits the first count as larger.
	TopK int
	// TopP draws only among the largest logits whose probabilities add up to TopP, the one
	// with which they reach it among them: nucleus sampling (Holtzman et al., arXiv
	// 1904.09751). The probabilities are those of the Temperature, and with TopK of these
	// classes alone, as in Hugging Face's transformers. 0, 1: among all.
	TopP float64
	// Draws is how many classes are drawn for each position, with replacement;
	// 0: one, and the result has no dimension for them.
	Draws int
}

// Sample draws classes with the probabilities softmax(logits / Temperature).
//
//	logits [C] or [N, C]   →   [] or [N], int64; with Draws [Draws] or [N, Draws]
//
//	logits    result   communication
//	R         R        none
//	S(0)      S(0)     none                        positions are sharded
//	S(1)      R        1 of 16 bytes a draw        classes are sharded
//	S(0),S(1) S(0),R   1 of 16 bytes a draw
//
// With TopK the communication is that of the function TopK, with TopP alone that of a TopK
// of all classes. Without them the logits stay where they are: each rank adds a random
// number of the Gumbel distribution to each of its logits, and the class of the largest sum
// over all ranks is drawn (Maddison, Tarlow and Minka, "A* Sampling", 2014). The random
// number depends only on Key and on the global index of draw, position and class (with TopK
// or TopP, on the rank of the class among the largest), so a layout does not change the
// drawn classes. It has 24 random bits: probabilities below 10⁻⁷ are not exact.
//
// A class whose logit is -Inf is never drawn, unless all logits of the position are
// -Inf: then class 0 is drawn. Logits of bfloat16 are converted to float32. Sample has no
// gradient.
//
// Sample throws an *Error for logits of another shape or type, for options out
// of their range, and for a logit that is NaN: where positions are sharded that aborts the mesh.
func Sample(logits *dtensor.Tensor, o SampleOptions) *dtensor.Tensor {
	const op = "Sample"
	if o.Temperature == 0 {
		o.Temperature = 1
	}
	checkRanked(op, logits)
	switch {
	case !(o.Temperature > 0) || math.IsInf(o.Temperature, 0):
		refuse(op, fmt.Sprintf("Temperature is %v; it must be positive", o.Temperature))
	case o.TopK < 0 || o.TopK > logits.Dim(-1):
		refuse(op, fmt.Sprintf("TopK is %d; logits %v have %d classes", o.TopK, logits, logits.Dim(-1)))
	case !(o.TopP >= 0 && o.TopP <= 1):
		refuse(op, fmt.Sprintf("TopP is %v; give a probability above 0, or 0 for all classes", o.TopP))
	case o.Draws < 0:
		refuse(op, fmt.Sprintf("Draws is %d; give at least 1, or 0 for one without a dimension", o.Draws))
	}
	p := shardingOf(op, logits, false)
	logits = logits.Detach().Redistribute(p.logits...)
	var classes *dtensor.Tensor // of the logits that are left; nil: their index
	nucleus := o.TopP > 0 && o.TopP < 1
	if nucleus && o.TopK == 0 {
		o.TopK = logits.Dim(-1) // all, in order
	}
	if o.TopK > 0 {
		logits, classes = TopK(logits, o.TopK)
		p = shardingOf(op, logits, false)
	}
	shape, places := slices.Clone(p.shape), p.targets
	if o.Draws > 0 {
		shape = append(shape, o.Draws)
	}
	if !p.mesh.Inside() {
		return p.mesh.Wrap(op, tensor.New(p.mesh.Device(), tensor.Int64, 0), nil, false, shape, places...)
	}
	p.bind(logits)
	local := logits.Local()
	if nucleus {
		local = inNucleus(local, o)
	}
	drawn := p.draw(local, o)
	if classes != nil {
		n := p.classes
		of := tensor.ToSlice[int64](classes.Local())
		for i, at := range drawn {
			drawn[i] = of[i/max(o.Draws, 1)*n+int(at)]
		}
	}
	localShape := slices.Clone(p.local)
	if o.Draws > 0 {
		localShape = append(localShape, o.Draws)
	}
	return p.mesh.Wrap(op, tensor.FromSlice(p.mesh.Device(), drawn, localShape...), nil, false, shape, places...)
}

// inNucleus returns logits of which each row is sorted, the largest first, with -Inf in place of those that TopP leaves out.
func inNucleus(logits *tensor.Tensor, o SampleOptions) *tensor.Tensor {
	list, n := tensor.ToSlice[float64](tensor.Cast(logits, tensor.Float64)), logits.Dim(-1)
	for row := range slices.Chunk(list, n) {
		weights, total := make([]float64, n), 0.0
		for i, v := range row {
			weights[i] = math.Exp((v - row[0]) / o.Temperature)
			total += weights[i]
		}
		before := 0.0 // the sum of those that are larger
		for i, w := range weights {
			if before >= o.TopP*total {
				row[i] = math.Inf(-1)
			}
			before += w
		}
	}
	return tensor.FromSlice(logits.Device(), list, logits.Shape()...)
}

// draw returns the classes drawn for the local positions, all draws of a position one
// after another. It makes the one collective over the classes.
func (p *sharding) draw(logits *tensor.Tensor, o SampleOptions) []int64 {
	draws, n := max(o.Draws, 1), p.positions()
	positions, first := 1, 0
	if len(p.shape) > 0 {
		positions, first = p.shape[0], p.offset[0]
	}
	won := noCandidates(n * draws)
	scaled := tensor.Cast(tensor.MulScalar(tensor.Cast(logits, p.wide), 1/o.Temperature).Reshape(n, p.n), tensor.Float64)
	for d := 0; d < draws && n*p.n > 0; d++ {
		u := tensor.New(logits.Device(), tensor.Float32, 1, n, p.n)
		tensor.FillUniform(u, o.Key, 0, 1, []int{draws, positions, p.classes}, []int{d, first, p.lo})
		gumbel := tensor.Cast(u, tensor.Float64)
		for _, op := range []kernel.UnaryOp{kernel.OpLog, kernel.OpNeg, kernel.OpLog, kernel.OpNeg} { // -ln(-ln u)
			gumbel = tensor.Unary(op, gumbel)
		}
		values, index := tensor.TopK(tensor.Add(scaled, gumbel.Reshape(n, p.n)), 1, 1)
		classes := tensor.ToSlice[int64](index)
		for i, v := range tensor.ToSlice[float64](values) {
			won[i*draws+d] = candidate{v, classes[i] + int64(p.lo)}
		}
	}
	drawn := p.bestClasses(won)
	for i, w := range won {
		if math.IsNaN(w.Sum) {
			p.refuseNaN(first + i/draws)
		}
	}
	return drawn
}

// refuseNaN throws that a logit of a position is NaN. Where positions are divided this rank alone may see it, and aborts the mesh.
func (p *sharding) refuseNaN(position int) {
	err := &Error{Op: "Sample", Detail: fmt.Sprintf("a logit of position %d is NaN; look for the operator that made it with %s=1",
		position, dtensor.AnomalyVar)}
	refuseElement(p.mesh, err, p.batchGroup != nil)
}
