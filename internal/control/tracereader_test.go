//go:build linux

package control

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"
)

// everything returns a trace with a record of every shape and a sample of every kind.
func everything(t *testing.T) []byte {
	return traced(t, 2, func(rank int, log *TraceLog, at int64) {
		for shape := range traceShapes {
			r := TraceRecord{Start: at + 1000*int64(shape+1), Shape: shape, Peer: -1, Name: log.Text("AllReduce"), Site: log.Text("main.go:7")}
			r.End = r.Start + 500
			switch {
			case shape == TraceStep:
				r.End, r.Name, r.Site, r.Number = 0, 0, 0, 3
			case shape.Call():
				r.Call, r.Number, r.Bytes, r.Count, r.Size = 4, 5, 64, 8, 2
				r.Comm, r.Op, r.DType, r.Cause = log.Text("world"), log.Text("sum"), log.Text("int64"), log.Text("</script>\u2028")
				r.Async, r.Fails = shape == TraceFromRoot, shape == TraceToRoot
			}
			switch shape {
			case TraceSend:
				r.Name, r.Peer = log.Text("Send"), int32(1-rank)
			case TraceRecv:
				r.Name, r.Peer = log.Text("Recv"), int32(1-rank)
			case TraceWait:
				r.Call, r.Number, r.Bytes, r.Count = 0, 0, 0, 0
			}
			log.Add(r)
		}
		log.Sample(TraceSample{At: at + 100, Step: 2, Value: 0.5, Name: log.Text("loss")})
		log.Sample(TraceSample{At: at + 200, Step: 2, Value: math.NaN(), Name: log.Text("loss")})
		log.Sample(TraceSample{At: at + 300, Step: -1, Value: 1 << 30, Kind: SampleMemory})
		log.Sample(TraceSample{At: at + 400, Step: 3, Value: 3, Kind: SampleStep})
		log.Sample(TraceSample{At: at, Step: -1, Kind: SampleLayout, Name: log.Text(`{"name":"w"}`)})
		log.End()
	})
}

// TestReadTraceJSON: a trace that is written, read and written again is the same.
func TestReadTraceJSON(t *testing.T) {
	text := everything(t)
	parts, err := ReadTraceJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := WriteTrace(&again, parts); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again.Bytes(), text) {
		t.Errorf("got\n%s\nwant\n%s", again.Bytes(), text)
	}
	p := parts[1]
	var kinds []SampleKind
	for _, s := range p.Samples {
		kinds = append(kinds, s.Kind)
	}
	if len(parts) != 2 || p.Rank != 1 || len(p.Records) != int(traceShapes) || p.Ended == 0 || !reflect.DeepEqual(kinds, []SampleKind{
		SampleLayout, SampleMetric, SampleMetric, SampleMemory, SampleStep,
	}) {
		t.Errorf("got %+v", p)
	}
}

func TestReadTraceJSONOfDamagedFiles(t *testing.T) {
	whole := string(everything(t))
	for _, c := range []struct{ text, want string }{
		{"", "no JSON object"},
		{"hello", "no JSON object"},
		{"[]", "no JSON object"},
		{"{}", "no traceEvents"},
		{whole[:len(whole)/2], "cut off"},
		{whole[:len(whole)-3], "cut off"},
		{strings.Replace(whole, `"producer":"gorun"`, `"producer":"another"`, 1), "another program"},
		{`{"traceEvents":[]}`, "no rank"},
		{`{"traceEvents":[{"ph":"X","pid":-1}]}`, "rank -1"},
		{`{"traceEvents":[{"ph":"X","pid":0,"ts":1e300}]}`, "time 1e+300"},
		{`{"traceEvents":[{"ph":"X","pid":0,"cat":"what"}]}`, `unknown category "what"`},
		{`{"traceEvents":[{"ph":"?","pid":0}]}`, "unknown phase"},
		{`{"traceEvents":[7]}`, "cannot unmarshal"},
	} {
		if _, err := ReadTraceJSON(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40s: error %v, want %q", c.text, err, c.want)
		}
	}
}

func FuzzReadTraceJSON(f *testing.F) {
	f.Add([]byte(`{"otherData":{"producer":"gorun"},"traceEvents":[{"ph":"X","pid":0,"ts":1,"dur":2,"cat":"step","name":"step 1"}]}`))
	f.Add([]byte(`{"traceEvents":[{"ph":"M","pid":3,"name":"gorun_rank","args":{"began":1,"ended":9}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		parts, err := ReadTraceJSON(bytes.NewReader(text))
		if err != nil {
			return
		}
		if err := WriteTrace(new(bytes.Buffer), parts); err != nil {
			t.Error(err)
		}
	})
}
