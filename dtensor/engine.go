package dtensor

import (
	"context"
	"os"
	"runtime"
	"sync/atomic"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/forecast"
	"github.com/gorun-spmd/gorun/internal/observe"
	"github.com/gorun-spmd/gorun/tensor"
)

// An engine is what one rank keeps for all its meshes. It hangs on the world
// communicator, so that four ranks in one process have four.
type engine struct {
	within
	dev tensor.Device

	common *common // what this rank has together with others of this process

	keys    uint64         // how many NextKey has returned
	noted   []Noted        // see NoteState
	isNoted map[Noted]bool // has those of noted; nil before the first StartKeys

	check   bool // see CheckReplicas
	detect  bool // see DetectAnomaly
	same    bool // see SameBits
	overlap int  // see SetOverlap

	products *ProductSample   // of SampleProduct; nil: none
	ops      *OperatorDigests // of DigestOperators; nil: none

	passing int           // how many ValueAndGrad and Accumulate are in progress, one in another
	ends    []func(error) // what AtEnd was given in them
	scaled  float64       // what NoteLossScale was given in the last one; 0: nothing

	started *atomic.Int64 // see comm.Internals.Started

	observer observe.Observer // is told what operators do; nil: nobody keeps a trace
	spanning bool             // an operator is in progress that it will be told of
	line     []uintptr        // the stack of the operator that is differentiated, if there is an observer

	forecast forecast.Watcher // is told of meshes; nil: the program does not run for a forecast

	// observe, if a test has set it, is told of each redistribution of elements
	// of size bytes before it is carried out; packed ones share a collective
	// with those told of right before and after.
	observe func(from, to *spec, size int, cause string, packed bool)
}

// A within is what operators run within.
type within struct {
	ctx       context.Context // of the innermost ValueAndGrad or Try
	tape      *tape           // records while not nil
	recorded  *recordedPass   // the backward pass that runs, if it is recorded
	scope     *tensor.Scope   // of the innermost ValueAndGrad or Try; nil outside
	run       int             // of the function of a Recompute: firstRun, secondRun; 0 outside
	detecting *node           // the node whose gradient is being computed while detect is on, or products or ops is not nil
}

// enter lets what operators run within be changed until leave is called.
func (e *engine) enter() (leave func()) {
	outer := e.within
	return func() { e.within = outer }
}

// giveWay lets calls that were started go on, of which one processor carries out none while it computes.
func (e *engine) giveWay() {
	if e.started.Load() != 0 {
		runtime.Gosched()
	}
}

type engineKey struct{}

// DeviceKey is the attribute of the world communicator under which the device
// of this rank's tensors is kept. Whoever wants another than the one that package
// runtime chooses, or the CPU outside it, stores it there before the first mesh is
// made:
//
//	world.Internals().Attr(dtensor.DeviceKey{}, func() any { return device })
type DeviceKey struct{}

// engineOf returns the rank's engine, making it for the first mesh.
func engineOf(c *comm.Comm) *engine {
	return c.Internals().Attr(engineKey{}, func() any {
		dev := c.Internals().Attr(DeviceKey{}, func() any {
			if open, ok := c.Internals().Attr(tensor.OpenerKey{}, func() any { return nil }).(func() tensor.Device); ok {
				return open()
			}
			return tensor.Device(tensor.NewCPU(c.Memory()))
		})
		e := &engine{dev: dev.(tensor.Device), within: within{ctx: context.Background()}, common: commonOf(c), started: c.Internals().Started(),
			check: c.Internals().Checks(), detect: os.Getenv(AnomalyVar) == "1",
			observer: observe.Of(c.Internals().Attr), forecast: forecast.Of(c.Internals().Attr)}
		e.setSame(os.Getenv(SameBitsVar) == "1")
		if os.Getenv(OverlapVar) == "1" && tensor.OnHost(e.dev) {
			e.overlap = OverlapBytes
		}
		return e
	}).(*engine)
}
