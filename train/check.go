package train

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/optim"
)

// check returns what a run lacks or what its settings cannot mean, and sets those that have a default.
func (r *Run) check() error {
	if r.Program == "" {
		r.Program = filepath.Base(os.Args[0])
	}
	if r.PerStep == 0 {
		r.Unit, r.PerStep = "steps", 1
	}
	r.Unit = cmp.Or(r.Unit, "tokens")
	r.Advice = cmp.Or(r.Advice,
		"lower the rate, or run with "+dtensor.AnomalyVar+"=1, which names the first operator that makes such a number")
	err := r.wrong()
	if err != nil {
		err = fmt.Errorf("%s: %w", r.Program, err)
	}
	return err
}

func (r *Run) wrong() error {
	switch {
	case r.Steps < 0 || r.Limit < 0 || r.Accumulate < 0 || !(r.Clip >= 0) || r.PerStep < 0:
		return fmt.Errorf("train.Run: Steps %d, Limit %v, Accumulate %d, Clip %v, PerStep %d: give numbers of 0 and more",
			r.Steps, r.Limit, r.Accumulate, r.Clip, r.PerStep)
	case r.Step != nil:
		return nil
	case r.Loss == nil:
		return errors.New("train.Run: Loss is nil; give the function that returns the loss of a batch, or Step, which makes a whole step")
	case r.Params == nil:
		return errors.New("train.Run: Params is nil; give those that the gradients are of, such as model.Params()")
	case r.Optimizer == nil:
		return errors.New("train.Run: Optimizer is nil; give one that was made for nn.Tensors(Params), such as an optim.AdamW")
	case r.Rate == nil:
		return errors.New("train.Run: Rate is nil; give a schedule, such as optim.Constant{Rate: 1e-3}")
	}
	if r.Steps == 0 && r.Limit == 0 {
		return errors.New("train.Run: neither Steps nor Limit is given: the Rate would stand still at its beginning; give when the run ends")
	}
	if r.Scaler != nil && r.Clip > 0 {
		return fmt.Errorf("train.Run: Clip %v with a Scaler: give %[1]v as Limit of its optim.ScalerConfig, which clips unscaled gradients",
			r.Clip)
	}
	// A schedule that was meant for steps would be over as soon as the run has begun.
	warmup, every, total := Ticks, Ticks, Ticks
	switch s := r.Rate.(type) {
	case optim.WarmupCosine:
		warmup, total = s.Warmup, s.Total
	case optim.WarmupLinear:
		warmup, total = s.Warmup, s.Total
	case optim.OneCycle:
		total = s.Total
	case optim.Constant:
		warmup = s.Warmup
	case optim.WarmupStep:
		warmup, every = s.Warmup, s.Every
	}
	short := func(ticks, least int) bool { return ticks > 0 && ticks < least }
	if short(warmup, Ticks/2000) || short(every, Ticks/1000) || short(total, Ticks/4) {
		return fmt.Errorf("train.Run: Rate %T%+v counts steps, and a run is train.Ticks long, whatever its number of steps: "+
			"say Total: train.Ticks, Warmup: train.Ticks/20 for a twentieth of it", r.Rate, r.Rate)
	}
	return nil
}
