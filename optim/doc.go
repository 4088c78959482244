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
// The state of a parameter has the parameter's layout, so a step computes on this rank's
// shards and communicates nothing. The exceptions are RowAdagrad on a table whose columns
// are sharded, LAMB and Adafactor, which need norms of whole parameters, and Muon, which needs
// whole matrices. Ranks that hold replicas of a parameter make the same step on the same bits.
//
// A 0 in a configuration stands for what its field says, such as 0.9. For a Beta1 of 0, as GANs are trained with, give
// a number that is lost beside 1, such as 1e-30.
//
// LBFGS is no Optimizer: it evaluates the function itself, several times a step.
//
// A rate is a number, so any function of the step is a schedule; the package has
// WarmupCosine and others. Parameters with different settings, such as those without
// weight decay, form a Group each, and Groups is the optimizer of all. An EMA or an SWA averages
// parameters over the steps.
//
// # Narrow types
//
// Parameters are float32, float64, bfloat16 or float16. A step of 1/512 of an element would
// be lost in the rounding to bfloat16, so an optimizer keeps float32 weights for each
// parameter of a narrow type, bfloat16 or float16: "master" in its State, 4 bytes an
// element. A step changes these and rounds them to the parameter. If something else has
// written to the parameter since the last step, such as the load of a checkpoint, the step
// takes the written elements over into the float32 weights. The rest of the state is
// float32 too. NoMaster in an optimizer's configuration leaves the float32 weights out, for
// parameters too large for them: each step is then computed in float32 and rounded to the
// parameter.
//
// Gradients of float16 are often too small for the type. A Scaler multiplies the loss,
// divides the gradients in float32, and leaves out the steps that overflow.
//
// # Row-sparse gradients
//
// The gradient of a sharded embedding table is a dtensor.Rows: some rows of the table and
// their gradients. Every optimizer takes it. SGD without momentum and weight decay,
// SparseAdam, RowAdagrad, and Adagrad without weight decay change those rows only. The
// others do exactly what they do with a dense gradient that is zero elsewhere, which moves
// every row.
//
// A table can be changed in the backward pass itself, as soon as its rows have
// arrived, by an optimizer made for it alone: see Fuse of embedding.Table.
package optim
