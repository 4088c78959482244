package comm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
)

// traceEvent is a complete event of the Trace Event Format, which Chrome
// (chrome://tracing) and Perfetto (ui.perfetto.dev) show:
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
type traceEvent struct {
	Name  string         `json:"name"`
	Cat   string         `json:"cat"`
	Phase string         `json:"ph"`
	Start float64        `json:"ts"`  // microseconds
	Time  float64        `json:"dur"` // microseconds
	PID   int            `json:"pid"` // the rank
	TID   int            `json:"tid"`
	Args  map[string]any `json:"args"`
}

// WriteTrace writes the recorded events of all ranks of c to w, on rank 0, as
// one file that Chrome and Perfetto show, a track for each rank. All ranks call
// it together, each with its own events; w is not used on the others and may be
// nil there. The times are the hosts' clocks'.
func WriteTrace(ctx context.Context, c *Comm, w io.Writer, events []Event) error {
	var own bytes.Buffer
	for i := range events {
		e := &events[i]
		line, err := json.Marshal(traceEvent{
			Name: e.Kind.String(), Cat: e.Comm, Phase: "X", PID: c.world[c.rank],
			Start: float64(e.Start.UnixNano()) / 1e3, Time: float64(e.Time.Nanoseconds()) / 1e3,
			Args: map[string]any{"op": e.Op.String(), "dtype": e.DType.String(), "bytes": e.Bytes, "seq": e.Seq, "cause": e.Cause, "site": e.Site()},
		})
		if err != nil {
			return fmt.Errorf("comm: WriteTrace: %w", err)
		}
		own.Write(line)
		own.WriteString(",\n")
	}
	parts, err := GatherSlices(ctx, c, own.Bytes(), 0)
	if err != nil || c.rank != 0 {
		return err
	}
	all := bytes.TrimSuffix(bytes.Join(parts, nil), []byte(",\n"))
	if _, err := fmt.Fprintf(w, "[\n%s\n]\n", all); err != nil {
		return fmt.Errorf("comm: WriteTrace: %w", err)
	}
	return nil
}
