package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

// The limits of ReadTraceJSON. WriteTrace stays below them.
const (
	maxTraceBytes  = 2 << 30
	maxTraceEvents = 8 << 20
	maxTraceRanks  = 1 << 20
)

// A readEvent is an event of a file that WriteTrace has written.
type readEvent struct {
	Phase    string  `json:"ph"`
	Rank     int     `json:"pid"`
	Category string  `json:"cat"`
	Name     string  `json:"name"`
	Start    float64 `json:"ts"`  // microseconds
	Duration float64 `json:"dur"` // microseconds
	Step     int64   `json:"step"`
	Args     struct {
		Host, Layout, Name         string
		Began, Ended               int64
		Dropped                    uint64
		Comm, DType, Op, Cause, At string
		Seq, Number                uint64
		Bytes, Count               int64
		Rank                       *int32
		Ranks                      int32
		Shape                      TraceShape
		Async, Failed              bool
		Value                      *float64
	} `json:"args"`
}

// ReadTraceJSON returns the ranks' parts of a trace that WriteTrace has written, by rank. Times
// begin with 1. A file that is something else, or was cut off, is an error.
func ReadTraceJSON(r io.Reader) ([]*TracePart, error) {
	limited := &io.LimitedReader{R: r, N: maxTraceBytes}
	t := traceReader{in: json.NewDecoder(limited), parts: map[int]*readPart{}}
	err := t.read()
	switch {
	case err == nil:
	case limited.N == 0:
		return nil, fmt.Errorf("it has more than %d MiB: gorun writes less", maxTraceBytes>>20)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("it ends after %d bytes, in the middle: was it cut off?", t.in.InputOffset())
	default:
		return nil, fmt.Errorf("after %d bytes: %w", t.in.InputOffset(), err)
	}
	parts := make([]*TracePart, 0, len(t.parts))
	for _, rank := range slices.Sorted(maps.Keys(t.parts)) {
		p := t.parts[rank]
		p.Written = uint64(len(p.Records)) + p.dropped
		parts = append(parts, &p.TracePart)
	}
	if len(parts) == 0 {
		return nil, errors.New("it has no rank: gorun --trace has not written it")
	}
	return parts, nil
}

type readPart struct {
	TracePart
	dropped uint64
	texts   map[string]uint32
}

// text returns the number of a text.
func (p *readPart) text(s string) uint32 {
	if s == "" {
		return 0
	}
	n, ok := p.texts[s]
	if !ok {
		n = p.AddText(strings.ReplaceAll(s, "\x00", "?"))
		p.texts[s] = n
	}
	return n
}

type traceReader struct {
	in     *json.Decoder
	parts  map[int]*readPart
	events int
}

// read reads the file's object.
func (t *traceReader) read() error {
	if err := t.want(json.Delim('{')); err != nil {
		return errors.New("it is no JSON object; give a file of gorun --trace")
	}
	found := false
	for t.in.More() {
		key, err := t.in.Token()
		if err != nil {
			return err
		}
		if key != "traceEvents" {
			var other json.RawMessage
			if err := t.in.Decode(&other); err != nil {
				return err
			}
			if key == "otherData" && !strings.Contains(string(other), `"producer":"gorun"`) {
				return errors.New("another program has written it; give a file of gorun --trace")
			}
			continue
		}
		found = true
		if err := t.want(json.Delim('[')); err != nil {
			return err
		}
		for t.in.More() {
			if t.events++; t.events > maxTraceEvents {
				return fmt.Errorf("it has more than %d events: gorun writes less", maxTraceEvents)
			}
			var e readEvent
			if err := t.in.Decode(&e); err != nil {
				return err
			}
			if err := t.event(&e); err != nil {
				return fmt.Errorf("event %d: %w", t.events, err)
			}
		}
		if err := t.want(json.Delim(']')); err != nil {
			return err
		}
	}
	if !found {
		return errors.New("it has no traceEvents; give a file of gorun --trace")
	}
	return t.want(json.Delim('}'))
}

func (t *traceReader) want(d json.Delim) error {
	got, err := t.in.Token()
	if err == nil && got != d {
		err = fmt.Errorf("%v stands where %v belongs", got, d)
	}
	return err
}

// event adds an event to its rank's part.
func (t *traceReader) event(e *readEvent) error {
	const most = 1 << 53 / 1000 // microseconds that a float64 holds to the nanosecond
	switch {
	case e.Rank < 0 || e.Rank >= maxTraceRanks:
		return fmt.Errorf("rank %d; ranks are 0 to %d", e.Rank, maxTraceRanks-1)
	case !(e.Start >= 0 && e.Start < most && e.Duration >= 0 && e.Duration < most):
		return fmt.Errorf("time %v and duration %v are none", e.Start, e.Duration)
	}
	p := t.parts[e.Rank]
	if p == nil {
		p = &readPart{TracePart: TracePart{Rank: e.Rank, Began: 1}, texts: map[string]uint32{}}
		t.parts[e.Rank] = p
	}
	start := 1 + int64(math.Round(e.Start*1000))
	end := start + int64(math.Round(e.Duration*1000))
	switch e.Phase {
	case "M":
		return p.meta(e)
	case "C":
		s := TraceSample{At: start, Step: e.Step, Value: math.NaN()}
		if e.Args.Value != nil {
			s.Value = *e.Args.Value
		}
		switch e.Category {
		case "metric":
			s.Name = p.text(e.Name)
		case "memory":
			s.Kind = SampleMemory
		case "step":
			s.Kind = SampleStep
		default:
			return fmt.Errorf("a number of the unknown category %q", e.Category)
		}
		p.Samples = append(p.Samples, s)
	case "X":
		return p.slice(e, start, end)
	case "s", "f": // arrows follow from the records
	default:
		return fmt.Errorf("of the unknown phase %q", e.Phase)
	}
	return nil
}

// meta reads an event that describes the rank.
func (p *readPart) meta(e *readEvent) error {
	switch e.Name {
	case "gorun_rank":
		if e.Args.Began < 0 || e.Args.Ended < 0 {
			return errors.New("a rank began or ended before the first")
		}
		p.Host, p.Began, p.dropped = e.Args.Host, 1+e.Args.Began, e.Args.Dropped
		if e.Args.Ended > 0 {
			p.Ended = 1 + e.Args.Ended
		}
	case "gorun_layout":
		p.Samples = append(p.Samples, TraceSample{At: p.Began, Step: -1, Name: p.text(e.Args.Layout), Kind: SampleLayout})
	}
	return nil
}

// slice reads a record.
func (p *readPart) slice(e *readEvent, start, end int64) error {
	a := &e.Args
	r := TraceRecord{
		Start: start, End: end, Call: a.Seq, Number: a.Number, Bytes: a.Bytes, Count: a.Count, Name: p.text(e.Name), Comm: p.text(a.Comm),
		Op: p.text(a.Op), DType: p.text(a.DType), Cause: p.text(a.Cause), Site: p.text(a.At), Size: a.Ranks, Peer: -1,
		Async: a.Async, Fails: a.Failed,
	}
	if a.Rank != nil {
		r.Peer = *a.Rank
	}
	if r.Bytes < 0 || r.Peer < -1 || r.Peer >= maxTraceRanks {
		return fmt.Errorf("%d bytes for rank %d", r.Bytes, r.Peer)
	}
	switch e.Category {
	case "compute": // follows from the other records
		return nil
	case "step":
		if _, err := fmt.Sscanf(e.Name, "step %d", &r.Number); err != nil {
			return fmt.Errorf("%q is the name of no step", e.Name)
		}
		r.Shape, r.End, r.Name = TraceStep, 0, 0
	case "collective":
		if r.Shape = a.Shape; r.Shape > TraceToRoot {
			return fmt.Errorf("a collective of the unknown shape %d", r.Shape)
		}
	case "message":
		switch r.Shape = TraceSend; e.Name {
		case "Send":
		case "Recv":
			r.Shape = TraceRecv
		default:
			return fmt.Errorf("a message of the unknown kind %q", e.Name)
		}
	case "wait":
		r.Shape, r.Name = TraceWait, p.text(strings.TrimPrefix(e.Name, "wait for "))
	case "operator":
		r.Shape = TraceOperator
	case "gradient":
		r.Shape = TraceGradient
	case "span":
		r.Shape = TraceSpan
	default:
		return fmt.Errorf("of the unknown category %q", e.Category)
	}
	p.Records = append(p.Records, r)
	return nil
}
