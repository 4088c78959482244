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
// nothing. The exceptions are RowAdagrad on a table whose columns are sharded, and LAMB
// and Adafactor, which need norms of whole parameters.
// Ranks that hold replicas of a parameter make the same step on the same bits.
//
// A rate is a number, so any function of the step is a schedule; WarmupCosine and its kin
// are ready. Parameters that differ in their settings, as those without weight decay do,
// are in a Group each, and Groups is the optimizer of all. An EMA averages parameters
// over the steps.
//
// # Narrow types
//
// Parameters are float32, float64, bfloat16 or float16. A step of 1/512 of an element would
// be lost in the rounding to bfloat16, so an optimizer keeps float32 weights for each
// parameter of these two narrow types: "master" among its State, 4 bytes an element. A step changes
// these and rounds them to the parameter. What is written to the parameter in between,
// by a checkpoint that is loaded for one, counts: such elements are taken over. All else
// that an optimizer remembers of such a parameter is float32 too. NoMaster in an
// optimizer's configuration leaves the float32 weights out, for parameters too large for
// them: each step is then computed in float32 and rounded to the parameter.
//
// Gradients of float16 are often too small for the type. A Scaler multiplies the loss,
// divides the gradients in float32, and leaves out the steps that overflow.
//
// # Row-sparse gradients
//
// The gradient of a sharded embedding table is a dtensor.Rows: some rows of the
// table and their gradients. Every optimizer takes it, and what it then does is
// in its doc comment: SGD without momentum and weight decay, SparseAdam and
// RowAdagrad, and Adagrad without weight decay, touch those rows only; the others do
// exactly what they do with a gradient that is zero everywhere else, which moves every row.
//
// A table can be changed in the backward pass itself, as soon as its rows have
// arrived, by an optimizer made for it alone: see Fuse of embedding.Table.
package optim
