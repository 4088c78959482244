package suite

import "maps"

// halves are the operators that take bfloat16, with the inputs that are; the output is
// bfloat16 too unless it is a loss. Maximum is none: arguments that differ may be rounded
// to equal ones, which share the gradient.
var halves = map[string]struct {
	inputs []string
	loss   bool
}{
	"add": {inputs: pair}, "sub": {inputs: pair}, "mul": {inputs: pair}, "div": {inputs: pair}, "matmul": {inputs: pair},
	"gelu": {inputs: pair}, "gelu_tanh": {inputs: pair}, "relu": {inputs: pair}, "silu": {inputs: pair}, "tanh": {inputs: pair},
	"exp": {inputs: pair}, "sigmoid": {inputs: pair},
	"sin": {inputs: pair}, "cos": {inputs: pair}, "erf": {inputs: pair}, "roll": {inputs: pair},
	"tril": {inputs: pair}, "triu": {inputs: pair},
	"mse_loss": {inputs: compared, loss: true}, "kl_div": {inputs: compared, loss: true},
	"soft_margin_loss": {inputs: pair, loss: true}, "binary_cross_entropy_pos_weight": {inputs: pair, loss: true},
	"poisson_nll_loss": {inputs: compared, loss: true}, "cosine_embedding_loss": {inputs: []string{"a", "b"}, loss: true},
	"sum": {inputs: pair}, "mean": {inputs: pair}, "amax": {inputs: pair}, "softmax": {inputs: pair}, "log_softmax": {inputs: pair},
	"reshape": {inputs: pair}, "transpose": {inputs: pair}, "narrow": {inputs: pair}, "gather": {inputs: pair}, "index_select": {inputs: pair},
	"cat":                          {inputs: []string{"a", "b"}},
	"linear":                       {inputs: layer},
	"layer_norm":                   {inputs: layer},
	"rms_norm":                     {inputs: layer},
	"cross_entropy":                {inputs: []string{"logits"}, loss: true},
	"embedding":                    {inputs: []string{"weight"}},
	"embedding_bag":                {inputs: []string{"weight", "per_sample_weights"}},
	"scaled_dot_product_attention": {inputs: []string{"query", "key", "value"}},
	"linear_cross_entropy":         {inputs: []string{"hidden", "weight"}, loss: true},
}

var (
	pair     = []string{"input", "other"}
	compared = []string{"input", "target"}
	layer    = []string{"input", "weight", "bias"}
)

// Half returns the case in bfloat16, ok false for an operator that does not take it.
// What is expected is the same, within what rounding the inputs, some ten terms of a
// sum and the output to 8 bits makes of it.
func (c *Case) Half() (half *Case, ok bool) {
	op, ok := halves[c.Op]
	if !ok || c.Expect.Error != "" {
		return nil, false
	}
	h := *c
	h.Name += "@bf16"
	h.Tol = Tol{Rtol: 0.03, Atol: 0.06}
	h.Inputs, h.Expect.Grads, h.Expect.Local = maps.Clone(c.Inputs), maps.Clone(c.Expect.Grads), nil
	h.Expect.InputsAfter = maps.Clone(c.Expect.InputsAfter)
	for _, name := range op.inputs {
		for _, of := range []map[string]*Array{h.Inputs, h.Expect.Grads, h.Expect.InputsAfter} {
			if a := of[name]; a != nil {
				of[name] = a.half()
			}
		}
	}
	if !op.loss {
		h.Expect.Output = c.Expect.Output.half()
	}
	return &h, true
}

// half returns the array as bfloat16.
func (a *Array) half() *Array {
	h := *a
	h.DType = "bfloat16"
	return &h
}
