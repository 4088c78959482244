package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/gorun-spmd/gorun/checkpoint"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/job"
)

// checkShare is the share of the time that comparisons of replicas take by default.
const checkShare = 0.01

// A watcher compares replicas now and then, samples products, seals what only the optimizer changes, and writes digests if the
// user wants them.
type watcher struct {
	run   *Run
	world *comm.Comm
	state checkpoint.State
	every int // steps between comparisons; 0: by their cost

	steps int           // since the last comparison
	since time.Time     // of its end
	cost  time.Duration // of it

	sealed   *checkpoint.Seal       // until the step's update; nil: none
	watched  bool                   // the step that comes is one of which products are sampled, where they are
	products *dtensor.ProductSample // of the step that is made; nil: none

	log      *checkpoint.DigestLog // nil: none
	logEvery int
}

// newWatcher begins to watch over the run. goOn says that it has made steps before.
func (r *Run) newWatcher(ctx context.Context, world *comm.Comm, goOn bool) (*watcher, error) {
	w := &watcher{run: r, world: world, every: r.CheckReplicas, since: time.Now()}
	w.state, _ = r.state()
	if !w.state.Replicated() && !r.sealed() && w.sampled() == nil || w.every == 0 && os.Getenv("GORUN_CHECK") == "0" {
		w.every = -1
	}
	path := os.Getenv(job.DigestVar)
	if path == "" {
		return w, nil
	}
	var err error
	if w.logEvery, err = strconv.Atoi(cmp.Or(os.Getenv(job.DigestEveryVar), "1")); err != nil || w.logEvery < 1 {
		return nil, fmt.Errorf("train: %s=%s is not a number of steps; give 1 or more", job.DigestEveryVar, os.Getenv(job.DigestEveryVar))
	}
	if w.log, err = checkpoint.OpenDigestLog(ctx, world, path, goOn); err != nil {
		return nil, err
	}
	return w, w.arm()
}

// sealed reports whether the run's parameters and what the optimizer remembers can be sealed.
func (r *Run) sealed() bool {
	return r.Sealed && r.Step == nil && r.Params != nil && r.Optimizer != nil
}

// sample begins to sample the products of a step, if it is one to be watched.
func (w *watcher) sample(step int) {
	if m := w.sampled(); m != nil && w.watched {
		w.products = m.SampleProduct(uint64(step), func(yield func(string, *dtensor.Tensor) bool) {
			for name, p := range w.run.Params {
				if !yield("model."+name, p) {
					return
				}
			}
		})
	}
	w.watched = false
}

// sampled returns a mesh if products are sampled, which takes same bits and several ranks; else nil.
func (w *watcher) sampled() *dtensor.Mesh {
	if w.run.Params != nil && w.world.Size() > 1 {
		for _, p := range w.run.Params {
			if p.Mesh().SameBits() {
				return p.Mesh()
			}
			break
		}
	}
	return nil
}

// multiplied has another rank check what was sampled of the products of a step, if anything was, after so many steps.
func (w *watcher) multiplied(ctx context.Context, steps int) error {
	if w.products == nil {
		return nil
	}
	start := time.Now()
	err := w.products.Check(ctx, w.world)
	w.products = nil
	w.cost += time.Since(start)
	return w.fault(ctx, steps, err)
}

// fault writes to the digests that a step has ended by err, if it has.
func (w *watcher) fault(ctx context.Context, steps int, err error) error {
	if err != nil && w.log != nil {
		return errors.Join(err, w.log.WriteFault(ctx, steps, err))
	}
	return err
}

// arm has the step that comes watched.
func (w *watcher) arm() error {
	w.watched = true
	return w.seal()
}

// seal seals them until unseal.
func (w *watcher) seal() (err error) {
	if !w.run.sealed() {
		return nil
	}
	var state checkpoint.State
	state.AddTensors("model.", w.run.Params)
	state.AddTensors("optimizer.", w.run.Optimizer.State())
	w.sealed, err = checkpoint.NewSeal(&state)
	return err
}

// unseal checks what is sealed, if anything is, before so many steps have been made.
func (w *watcher) unseal(ctx context.Context, steps int) error {
	if w.sealed == nil {
		return nil
	}
	start := time.Now()
	err := w.sealed.Check(ctx, w.world)
	w.sealed = nil
	w.cost += time.Since(start)
	return w.fault(ctx, steps, err)
}

// due reports whether replicas are to be compared before the next step.
func (w *watcher) due() bool {
	w.steps++
	if w.every != 0 {
		return w.steps == w.every+1
	}
	return time.Since(w.since) >= time.Duration(float64(w.cost)/checkShare)
}

// check compares replicas.
func (w *watcher) check(ctx context.Context) error {
	start := time.Now()
	err := checkpoint.CheckReplicas(ctx, w.world, &w.state)
	if err == nil && !w.watched {
		err = w.arm()
	}
	w.since = time.Now()
	w.cost, w.steps = w.since.Sub(start), 1
	return err
}

// digest writes the digests of what so many steps have made.
func (w *watcher) digest(ctx context.Context, steps int, loss float64) error {
	if w.log == nil || steps%w.logEvery != 0 {
		return nil
	}
	state := w.state.Clone()
	if len(w.run.grads) > 0 {
		i := 0
		for name := range w.run.Params {
			if g := w.run.grads[i].Dense(); g != nil {
				state.AddTensor("gradient."+name, g)
			}
			i++
		}
	}
	if err := w.log.Write(ctx, steps, loss, state); err != nil {
		return err
	}
	return w.arm()
}

// close ends the file of digests, whose lines are written already.
func (w *watcher) close() {
	if w.log != nil {
		w.log.Close()
	}
}
