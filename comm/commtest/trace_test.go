package commtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
)

func TestTraceHasAllRanks(t *testing.T) {
	Run(t, 3, func(ctx context.Context, world *comm.Comm) error {
		r := world.Record()
		if world.Rank() != 1 { // a rank without events
			if _, err := world.Split(ctx, 0, 0); err != nil {
				return err
			}
			r.Stop()
		} else {
			r.Stop()
			if _, err := world.Split(ctx, 0, 0); err != nil {
				return err
			}
		}
		var out bytes.Buffer
		if err := comm.WriteTrace(ctx, world, &out, r.Events()); err != nil {
			return err
		}
		if world.Rank() != 0 {
			if out.Len() != 0 {
				return fmt.Errorf("rank %d wrote %q", world.Rank(), out.String())
			}
			return nil
		}
		var events []struct {
			Name string
			PH   string
			PID  int
			Dur  float64
			Args struct {
				Bytes int
				Site  string
			}
		}
		if err := json.Unmarshal(out.Bytes(), &events); err != nil {
			return fmt.Errorf("%w in %s", err, out.String())
		}
		if len(events) != 2 || events[0].PID != 0 || events[1].PID != 2 || events[0].Name != "Split" ||
			events[0].PH != "X" || events[0].Dur <= 0 || events[0].Args.Bytes != 16 || events[0].Args.Site == "" {
			return fmt.Errorf("got %+v", events)
		}
		return nil
	})
}
