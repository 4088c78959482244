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

	sealed   *checkpoint.Seal       // until the step's update, in a run of Step until its end; nil: none
	watched  bool                   // the step that comes is one of which products are sampled, where they are
	products *dtensor.ProductSample // of the step that is made; nil: none

	log      *checkpoint.DigestLog // nil: none
	logEvery int
	logOps   bool
}

// newWatcher begins to watch over the run. goOn says that it has made steps before.
func (r *Run) newWatcher(ctx context.Context, world *comm.Comm, goOn bool) (*watcher, error) {
	w := &watcher{run: r, world: world, every: r.CheckReplicas, since: time.Now()}
	w.state, _ = r.state()
	if !w.state.Replicated() && !r.sealed() && !w.samples() || w.every == 0 && os.Getenv("GORUN_CHECK") == "0" {
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
	if w.logOps = os.Getenv(job.DigestOpsVar) == "1"; w.logOps && w.mesh() == nil {
		return nil, errors.New("train: --digest-ops: the run keeps no tensor, which says on which mesh operators run; give Params or Keep.State")
	}
	if w.log, err = checkpoint.OpenDigestLog(ctx, world, path, goOn); err != nil {
		return nil, err
	}
	return w, w.arm()
}

// sealed reports whether there is something to seal.
func (r *Run) sealed() bool {
	if r.Step != nil {
		return r.Sealed && r.Keep.State != nil
	}
	return r.Sealed && r.Params != nil && r.Optimizer != nil
}

// Lift says that Step is about to change tensors of Keep.State, once their gradients are there. If they are sealed it looks whether
// something else has changed them, and Do ends the job after the step if so. It makes no call.
func (r *Run) Lift(tensors ...*dtensor.Tensor) {
	if w := r.watch; w != nil && w.sealed != nil {
		start := time.Now()
		w.sealed.Lift(tensors...)
		w.cost += time.Since(start)
	}
}

// mesh returns the mesh of the first tensor that the run keeps; nil if there is none.
func (w *watcher) mesh() *dtensor.Mesh {
	for _, t := range w.state.Tensors() {
		return t.Mesh()
	}
	return nil
}

// samples reports whether products are sampled, which takes same bits and several ranks.
func (w *watcher) samples() bool {
	m := w.mesh()
	return m != nil && m.SameBits() && w.world.Size() > 1
}

// multiplied has another rank check what was sampled of the products of a step, if anything was, after a number of steps.
func (w *watcher) multiplied(ctx context.Context, steps int) error {
	if w.products == nil {
		return nil
	}
	err := w.costs(ctx, func() error { return w.products.Check(ctx, w.world) })
	w.products = nil
	return w.fault(ctx, steps, err)
}

// fault writes to the digests that a step has ended by err, if it has.
func (w *watcher) fault(ctx context.Context, steps int, err error) error {
	if err != nil && w.log != nil {
		return errors.Join(err, w.log.WriteFault(ctx, steps, err))
	}
	return err
}

// begin begins the watch over the step that begins after a number of others.
func (w *watcher) begin(steps int) error {
	if w.watched && w.samples() {
		w.products = w.mesh().SampleProduct(uint64(steps), w.state.Tensors())
	}
	w.watched = false
	if w.logOps && (steps+1)%w.logEvery == 0 {
		return w.log.Operators(w.mesh())
	}
	return nil
}

// arm has the step that comes watched.
func (w *watcher) arm() error {
	w.watched = true
	return w.seal()
}

// seal seals them until unseal. What Loss may change, as Buffers, is left out.
func (w *watcher) seal() (err error) {
	if !w.run.sealed() {
		return nil
	}
	var state checkpoint.State
	if w.run.Step != nil {
		state.AddTensors("", w.state.Tensors())
	} else {
		state.AddTensors("model.", w.run.Params)
		state.AddTensors("optimizer.", w.run.Optimizer.State())
	}
	w.sealed, err = checkpoint.NewSeal(&state)
	return err
}

// unseal checks what is sealed, if anything is, in step number steps.
func (w *watcher) unseal(ctx context.Context, steps int) error {
	if w.sealed == nil {
		return nil
	}
	err := w.costs(ctx, func() error { return w.sealed.Check(ctx, w.world) })
	w.sealed = nil
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

// costs adds the time of f, which is collective, to the cost. Waiting for a late rank is none.
func (w *watcher) costs(ctx context.Context, f func() error) error {
	err := comm.Barrier(ctx, w.world)
	start := time.Now()
	if err == nil {
		err = f()
	}
	w.cost += time.Since(start)
	return err
}

// check compares replicas.
func (w *watcher) check(ctx context.Context) error {
	w.cost = 0
	err := w.costs(ctx, func() error {
		if err := checkpoint.CheckReplicas(ctx, w.world, &w.state); err != nil || w.watched {
			return err
		}
		return w.arm()
	})
	w.since, w.steps = time.Now(), 1
	return err
}

// digest writes the digests of the state after a number of steps.
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

// close ends what begin has begun, and the file of digests, whose lines are written already.
func (w *watcher) close() {
	w.products.Drop()
	if w.log != nil {
		w.log.Close()
	}
}
