package commtest

import (
	"context"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/mem"
)

func TestMem(t *testing.T) { TestBackend(t, Ranks) }

func TestMemAllocations(t *testing.T) { TestAllocations(t, Ranks) }

func TestMemRefusesUnknownKinds(t *testing.T) {
	if err := UnknownKind(t.Context(), mem.Open(2)[0]); err != nil {
		t.Error(err)
	}
}

// without is a backend that lacks one kind.
type without struct {
	comm.Backend
	kind comm.Kind
}

func (b without) Do(ctx context.Context, call *comm.Call) error {
	if call.Kind == b.kind {
		err := call.Carried("a backend", 0)
		b.Abort(err)
		return err
	}
	return b.Backend.Do(ctx, call)
}

func (b without) Split(ctx context.Context, members []int) (comm.Backend, error) {
	made, err := b.Backend.Split(ctx, members)
	if made == nil || err != nil {
		return nil, err
	}
	return without{made, b.kind}, nil
}

// The suite names the kind that a backend lacks.
func TestSuiteNamesAMissingKind(t *testing.T) {
	for kind := comm.Invalid + 1; kind < comm.Kinds; kind++ {
		if !collective(kind) {
			continue
		}
		ranks := mem.Open(2)
		errs := make(chan error, len(ranks))
		for _, r := range ranks {
			go func() { errs <- everyKind(t.Context(), comm.NewWorld(without{r, kind})) }()
		}
		for range ranks {
			if err := <-errs; err == nil || !strings.Contains(err.Error(), "does not carry out "+kind.String()+":") {
				t.Errorf("a backend without %v: got %v", kind, err)
			}
		}
	}
}
