package nn

import (
	"fmt"
	"math"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// A MoEConfig describes a MoE. Width, Hidden and Experts are needed.
type MoEConfig struct {
	Width      int                                     // C: features of x
	Hidden     int                                     // F: features inside an expert
	Experts    int                                     // E
	TopK       int                                     // K: experts of each token; 0: 2
	Capacity   float64                                 // how many times K·N/E tokens an expert takes; 0: 1.25
	Activation func(x *dtensor.Tensor) *dtensor.Tensor // of the experts; nil: Gelu
	Axis       string                                  // the mesh axis that divides the experts, as a rule the one of the batch; "": none
}

// A MoE is a mixture of experts in place of an MLP: each token goes to the K of E small
// MLPs that a router likes best (Shazeer et al., 2017; Lepikhin et al., GShard, 2020).
// The experts are divided over one axis of the mesh: expert parallelism.
//
// The results of a token's experts are weighted by the router's probabilities for them,
// divided by their sum. An expert takes Capacity·K·N/E of the N tokens of the whole batch,
// rounded up; first choices come before second ones, and earlier tokens before later ones.
// A choice that does not fit adds nothing, so a token without an expert only passes along
// the residual stream. How the batch is divided over ranks does not change a result.
type MoE struct {
	Router   *Linear         // [E, C]
	Up, Down *dtensor.Tensor // [E, F, C] and [E, C, F], S(0)
	config   MoEConfig
}

// NewMoE makes a MoE with weights of standard deviation 1/√in.
func NewMoE(init *Init, c MoEConfig) *MoE {
	if c.TopK == 0 {
		c.TopK = 2
	}
	if c.Capacity == 0 {
		c.Capacity = 1.25
	}
	if c.Activation == nil {
		c.Activation = (*dtensor.Tensor).Gelu
	}
	if c.Experts < 1 || c.TopK < 1 || c.TopK > c.Experts || !(c.Capacity > 0) {
		fault.Throw(fmt.Errorf("nn: NewMoE: %d of %d experts for each token and capacity %v: TopK is from 1 to Experts, Capacity above 0",
			c.TopK, c.Experts, c.Capacity))
	}
	if c.Width < 1 || c.Hidden < 1 {
		fault.Throw(fmt.Errorf("nn: NewMoE: Width %d, Hidden %d: give both, 1 or more", c.Width, c.Hidden))
	}
	s := layout.Shard(0)
	return &MoE{
		Router: NewLinear(init, c.Width, c.Experts, false, Style{}),
		Up:     init.Normal(1/math.Sqrt(float64(c.Width)), []int{c.Experts, c.Hidden, c.Width}, c.Axis, s),
		Down:   init.Normal(1/math.Sqrt(float64(c.Hidden)), []int{c.Experts, c.Width, c.Hidden}, c.Axis, s),
		config: c,
	}
}

// Forward returns the mixture of x and the load-balancing loss, E·Σ fₑ·pₑ: fₑ is the share
// of choices that expert e got and pₑ its mean probability, so the loss is 1 if all
// experts get the same share. Add about 0.01 times it to the training loss. Of narrow types
// the probabilities and the loss are float32, else of x's type.
//
//	x [B, T, C] S(0)   →   y [B, T, C] S(0)   balance []
//
// It gathers the choices of all tokens, 8·K bytes a token, and sends K rows a token to the
// experts and back by two all-to-alls; so does the gradient. Where other axes divide the batch
// too, the ranks along them share the work of an expert.
func (m *MoE) Forward(x *dtensor.Tensor) (y, balance *dtensor.Tensor) {
	c := m.config
	rows := x.Flatten(0, x.NDim()-2)                     // [N, C] S(0)
	probs := widened(m.Router.Forward(rows)).Softmax(-1) // [N, E] S(0)
	weights, chosen := probs.TopK(c.TopK, -1)            // [N, K] S(0)
	r := m.route(chosen, probs.DType())
	balance = probs.Mean([]int{0}, false).Reduced().Mul(r.share).Sum(nil, false).Scale(float64(c.Experts))

	in := embedding.Lookup(rows, r.tokens, embedding.Options{}) // [E, D, S, C] S(0): the tokens of each slot
	h := c.Activation(dtensor.Einsum("edsc,efc->edsf", in, m.Up.Cast(in.DType())))
	out := dtensor.Einsum("edsf,ecf->edsc", h, m.Down.Cast(in.DType())).Transpose(0, 1).Flatten(0, 2) // [D·E·S, C] S(0)

	back := embedding.Lookup(out, r.slots, embedding.Options{})    // [N, K, C] S(0)
	weights = weights.Div(weights.Sum([]int{1}, true)).Mul(r.fits) // [N, K]
	mixed := back.Mul(weights.Cast(x.DType()).Unsqueeze(2)).Sum([]int{1}, false)
	return mixed.Reshape(x.Shape()...), balance
}

// A routing says which token is in which slot of the experts.
type routing struct {
	tokens *dtensor.Tensor // [E, D, S] S(0), S(1) on the axes, of D ranks, that divide only the batch: the token in each slot, or 0
	slots  *dtensor.Tensor // [N, K] in chosen's layout: the slot of each choice in [D, E, S]; 0 if it does not fit
	fits   *dtensor.Tensor // [N, K] in chosen's layout: 1 if the choice fits, else 0
	share  *dtensor.Tensor // [E] R: each expert's share of the choices, whether they fit or not
}

// route assigns slots to the choices [N, K]; dt is the type of fits and share. Every rank computes them for all choices. The
// slots of an expert are divided among the ranks that hold it, and a token is where it comes from if there is room.
func (m *MoE) route(chosen *dtensor.Tensor, dt tensor.DType) routing {
	mesh, c := chosen.Mesh(), m.config
	n := chosen.Dim(0)
	all := tensor.ToSlice[int64](chosen.Full())
	parts, places := 1, mesh.Every(layout.Replicate())
	for i, a := range mesh.Axes() {
		switch {
		case a.Name == c.Axis:
			places[i] = layout.Shard(0)
		case chosen.Placements()[i].IsShard() && !mesh.SameBits(): // which keeps the sums of one rank
			places[i] = layout.Shard(1)
			parts *= a.Size
		}
	}
	size := int(min(float64(n), math.Ceil(c.Capacity*float64(c.TopK*n)/float64(c.Experts)))) // a token chooses an expert once
	room, home := ints.DivUp(size, parts), max(ints.DivUp(n, parts), 1)
	tokens, slots := make([]int64, parts*c.Experts*room), make([]int64, n*c.TopK)
	fits, share := make([]float64, n*c.TopK), make([]float64, c.Experts)
	total, taken := make([]int, c.Experts), make([]int, parts*c.Experts)
	for k := range c.TopK {
		for token := 0; token < n && len(all) > 0; token++ { // none on a rank outside the mesh
			i := token*c.TopK + k
			e := int(all[i])
			share[e]++
			if total[e] == size {
				continue
			}
			total[e]++
			d := token / home
			for taken[e*parts+d] == room {
				d = (d + 1) % parts
			}
			s := taken[e*parts+d]
			taken[e*parts+d]++
			tokens[(e*parts+d)*room+s], slots[i], fits[i] = int64(token), int64((d*c.Experts+e)*room+s), 1
		}
	}
	for e := range share {
		share[e] /= float64(max(n*c.TopK, 1))
	}
	dev := mesh.Device()
	whole := mesh.Every(layout.Replicate())
	return routing{
		tokens: dtensor.Distribute(mesh, tensor.FromSlice(dev, tokens, c.Experts, parts, room), places...),
		slots:  dtensor.Distribute(mesh, tensor.FromSlice(dev, slots, n, c.TopK), chosen.Placements()...),
		fits:   dtensor.Distribute(mesh, tensor.Cast(tensor.FromSlice(dev, fits, n, c.TopK), dt), chosen.Placements()...),
		share:  dtensor.Distribute(mesh, tensor.Cast(tensor.FromSlice(dev, share, c.Experts), dt), whole...),
	}
}

// Params lists the router and the experts.
func (m *MoE) Params() Params {
	return func(yield func(string, *dtensor.Tensor) bool) {
		_ = yield("router.weight", m.Router.Weight) && yield("up.weight", m.Up) && yield("down.weight", m.Down)
	}
}
