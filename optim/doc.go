// Package optim holds optimizers for sharded parameters.
//
// An optimizer is made for a list of parameters and takes the gradients that
// dtensor.ValueAndGrad returned for the same list, with the learning rate of
// the step:
//
//	opt := optim.NewAdamW(params, optim.AdamWConfig{WeightDecay: 0.1})
//	rate := optim.WarmupCosine{Peak: 3e-4, Floor: 3e-5, Warmup: 100, Total: steps}
//	for step := range steps {
//		loss, grads, err := dtensor.ValueAndGrad(ctx, forward, params...)
//		...
//		norm, err := optim.ClipGradNorm(ctx, params, grads, 1)
//		...
//		err = opt.Step(grads, rate.At(step))
//	}
//
// A parameter's state lies as the parameter does, so it is sharded when the
// parameter is, and a step is arithmetic on this rank's shards: it communicates
// nothing (RowAdagrad on a table whose columns are sharded is the exception).
// Ranks that hold replicas of a parameter make the same step on the same bits.
//
// A rate is a number, so any function of the step is a schedule. Parameters that differ
// in their settings, as those without weight decay do, have an optimizer for each group:
// list params group by group, and give each optimizer its part of grads.
//
// # Bfloat16
//
// Parameters are float32, float64 or bfloat16. What an optimizer remembers of a parameter
// of bfloat16 is float32 (torch.optim keeps it in bfloat16), so the moments do not lose
// what is small beside them. A step is computed in float32 and the parameter rounded
// once, to the nearest: a change of less than 1/512 of an element leaves it as it is.
// Where steps are that small, train a float32 parameter and Cast it in the forward pass.
//
// # Row-sparse gradients
//
// The gradient of a sharded embedding table is a dtensor.Rows: some rows of the
// table and their gradients. Every optimizer takes it, and what it then does is
// in its doc comment: SGD without momentum and weight decay, SparseAdam and
// RowAdagrad touch those rows only; AdamW and SGD with momentum do exactly what
// they do with a gradient that is zero everywhere else, which moves every row.
//
// A table can be changed in the backward pass itself, as soon as its rows have
// arrived, by an optimizer made for it alone: see Fuse of embedding.Table.
package optim
