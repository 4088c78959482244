package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/device"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/cuda"
)

// A chooser opens the device of a rank's tensors when the first is made.
type chooser struct {
	mu sync.Mutex

	dev   tensor.Device
	trial *tensor.Tensor // memory of the device that an MPI library was tried with, and may still use if it failed
}

// UseDevice says where this rank's tensors live: "cpu"; "cuda" for the GPU whose
// number is the rank's among those of its host, modulo their number; "cuda:1" for
// one of them; "auto" for what gorun --gpus says, the CPU without it, which is what
// holds without a call. CUDA_VISIBLE_DEVICES chooses and orders the
// GPUs. It is called before the first mesh is made, with the same argument on every
// rank. Its error says what is missing.
//
// All ranks that ask for a GPU call it together: it finds out whether the MPI library
// takes addresses of GPUs, or over shared memory whether the ranks' GPUs can read each
// other's memory, and whether they can fold reductions, which is not tried without a
// call.
func UseDevice(ctx context.Context, name string) error {
	kind, number, numbered := strings.Cut(name, ":")
	if _, err := strconv.ParseUint(number, 10, 16); kind != "cuda" && name != "cpu" && name != "auto" || numbered &&
		(kind != "cuda" || err != nil) {
		return fmt.Errorf("runtime: UseDevice: there is no device %q; give cpu, cuda, cuda:0 or auto", name)
	}
	r := from(ctx)
	if r == nil {
		return errors.New("runtime: UseDevice: this context was not made by Main")
	}
	if r.forecast != nil { // it has no numbers, wherever it is
		return nil
	}
	c := &r.device
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dev != nil {
		return fmt.Errorf("runtime: UseDevice(%q): tensors have been made on %v already; call it before the first mesh", name, c.dev)
	}
	dev, err := r.openDevice(name)
	if r.wantsGPU(name) { // also after an error: the others must not wait for this rank
		if failed := r.tryDirect(ctx, dev, err); err == nil {
			err = failed
		}
	}
	if err != nil {
		return err
	}
	c.dev = dev
	return nil
}

// wantsGPU reports whether name asks for a GPU, by what all ranks know.
func (r *rank) wantsGPU(name string) bool {
	gpus := os.Getenv(job.GPUsVar)
	return gpus != "none" && name != "cpu" && (name != "auto" || gpus != "")
}

// peerWindow is how much of a GPU's memory its rank shares with those of the others:
// two calls at once may move 16 MiB at a time while they put the next there.
const peerWindow = 64 << 20

// Calls without a buffer of stageBytes on any rank are staged; stageVar is another number.
// The ways among devices wait two or three times for all ranks' devices whatever they
// move, some tens of microseconds with a device for each rank, in which this many bytes
// pass the host as well; with one for several ranks, which take turns, it is a megabyte.
const (
	stageBytes = 256 << 10
	stageVar   = "GORUN_CUDA_STAGE"
)

// foldPiece is how much a rank hands in at a time of a reduction that the devices fold
// and an MPI library moves.
const foldPiece = 32 << 20

// tryDirect has collectives use addresses of dev, if the backend takes them on all
// ranks, or else read the memory of the other ranks' devices, if all can, and reductions
// folded there. failed is why this rank has none.
func (r *rank) tryDirect(ctx context.Context, dev tensor.Device, failed error) error {
	problem := ""
	if _, ok := dev.(*cuda.Device); failed != nil {
		problem = failed.Error()
	} else if !ok {
		problem = "its tensors are on the CPU"
	}
	reason, err := device.TryDirect(ctx, r.world, problem, func(bytes int) (p unsafe.Pointer, err error) {
		defer fault.Catch(&err)
		r.device.trial = tensor.New(dev, tensor.Uint8, bytes).Persist()
		return r.device.trial.Ptr(), nil
	})
	if err != nil {
		return err
	}
	how := "hand addresses of GPUs to MPI"
	switch {
	case reason == "":
		r.device.trial.Free()
	case r.world.Internals().OneHost():
		how = "read the memory of the other ranks' GPUs"
		if problem == "" && os.Getenv("GORUN_CUDA_IPC") == "0" {
			problem = "GORUN_CUDA_IPC is 0"
		}
		if reason, err = device.TryPeers(ctx, r.world, problem, peerWindow); err != nil {
			return err
		}
	}
	folds := reason
	if reason == "" {
		if os.Getenv("GORUN_CUDA_FOLD") == "0" {
			problem = "GORUN_CUDA_FOLD is 0"
		}
		if folds, err = device.TryFold(ctx, r.world, problem, foldPiece); err != nil {
			return err
		}
		below := stageBytes
		if v := os.Getenv(stageVar); v != "" {
			if below, err = strconv.Atoi(v); err != nil {
				return fmt.Errorf("runtime: UseDevice: %s is %q; give a number of bytes", stageVar, v)
			}
		}
		if err := device.StageBelow(ctx, r.world, below); err != nil {
			return err
		}
	}
	r.sayTransport(dev, how, reason, folds)
	return nil
}

// sayTransport logs, once in the job, how collectives move what lies on GPUs; reason
// is why they do not do what how says, and folds why no reduction is folded there.
func (r *rank) sayTransport(dev tensor.Device, how, reason, folds string) {
	_, gpu := dev.(*cuda.Device)
	switch {
	case r.job.Rank != 0 || r.world.Size() == 1 || !gpu:
	case reason == "" && folds == "":
		r.log.Info().Msg("collectives " + how + ", and reductions are folded on the GPUs")
	case reason == "":
		r.log.Info().Str("reason", folds).Msg("collectives " + how + ", but for reductions, which are staged through pinned host memory")
	default:
		r.log.Info().Str("reason", reason).Msg("collectives on GPUs are staged through pinned host memory")
	}
}

// offerDevice has the first mesh ask for the device.
func (r *rank) offerDevice() {
	r.world.Internals().Attr(tensor.OpenerKey{}, func() any {
		return func() tensor.Device {
			c := &r.device
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.dev == nil {
				dev, err := r.openDevice("auto")
				if err != nil {
					fault.Throw(err)
				}
				r.sayTransport(dev, "", "the program did not call runtime.UseDevice", "")
				c.dev = dev
			}
			return c.dev
		}
	})
}

// openDevice opens the device that name asks for.
func (r *rank) openDevice(name string) (tensor.Device, error) {
	if r.forecast != nil {
		return r.forecast.dev, nil
	}
	gpus := os.Getenv(job.GPUsVar)
	if name == "cpu" || name == "auto" && (gpus == "" || gpus == "none") {
		return tensor.NewCPU(r.world.Memory()), nil
	}
	if gpus == "none" {
		return nil, fmt.Errorf("runtime: the program wants %s, but %s is none: start it without --gpus none", name, job.GPUsVar)
	}
	if name == "auto" && gpus != "auto" {
		name = "cuda" // they are named: it is an error if they are not there
	}
	drv, err := cuda.Load()
	switch {
	case name == "auto" && (err != nil || drv.Count() == 0):
		r.log.Debug().AnErr("cuda", err).Msg("tensors on the CPU: no GPU found")
		return tensor.NewCPU(r.world.Memory()), nil
	case err != nil:
		return nil, err
	case drv.Count() == 0 && os.Getenv("CUDA_VISIBLE_DEVICES") != "":
		return nil, fmt.Errorf("runtime: the program wants %s, and CUDA_VISIBLE_DEVICES=%s (gorun --gpus sets it) leaves no GPU; "+
			"gorun doctor says which there are", name, os.Getenv("CUDA_VISIBLE_DEVICES"))
	case drv.Count() == 0:
		return nil, fmt.Errorf("runtime: the program wants %s and there is no GPU; gorun doctor says what is missing", name)
	}
	i := r.job.LocalRank % drv.Count()
	if _, number, ok := strings.Cut(name, ":"); ok {
		i, _ = strconv.Atoi(number)
	}
	dev, err := drv.Open(i, r.job.Rank)
	if err != nil {
		return nil, err
	}
	var once sync.Once
	device.UseStage(r.world, stage{dev.Stage(), func(err error) {
		once.Do(func() { r.log.Warn().Err(err).Msg("host memory cannot be pinned: staged collectives take longer") })
	}})
	if r.job.LocalRank == 0 {
		d := dev.Description()
		r.log.Info().Str("device", dev.String()).Str("gpu", d.Name).Str("capability", d.Capability).Str("cuda", drv.Version()).
			Str("products", dev.Products()).Int("gpus", drv.Count()).Msg("tensors on GPUs")
	}
	return dev, nil
}

// stage is a device's, as comm sees it.
type stage struct {
	*cuda.Stage
	unpinned func(error) // is told why host memory could not be pinned
}

var _ device.PeerStage = stage{}

func (s stage) Pin(p unsafe.Pointer, bytes int) {
	if err := s.Stage.Pin(p, bytes); err != nil {
		s.unpinned(err)
	}
}

func (s stage) Open(lanes int) (device.Copies, error) {
	c, err := s.Stage.Open(lanes)
	if err != nil {
		return nil, err // not a nil *cuda.Copies
	}
	return copies{c}, nil
}

// copies are a stage's.
type copies struct{ *cuda.Copies }

func (c copies) Fold(lane int, op comm.Op, dst comm.Buffer, src unsafe.Pointer, ranks int) error {
	return c.Copies.Fold(lane, uint8(op), dst.DType, dst.Ptr, src, dst.Count, ranks)
}
