package suite

import "maps"

// halves are the operators that take bfloat16, with the inputs that are; the output is
// bfloat16 too unless it is a loss.
var halves = map[string]struct {
	inputs []string
	loss   bool
}{
	"matmul":               {inputs: []string{"input", "other"}},
	"linear":               {inputs: []string{"input", "weight", "bias"}},
	"cross_entropy":        {inputs: []string{"logits"}, loss: true},
	"embedding":            {inputs: []string{"weight"}},
	"embedding_bag":        {inputs: []string{"weight", "per_sample_weights"}},
	"linear_cross_entropy": {inputs: []string{"hidden", "weight"}, loss: true},
}

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
