//go:build linux

package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A viewed event is an event of a trace as a viewer reads it.
type viewed struct {
	PH, Name, Cat, BP string
	PID, TID          int
	TS, Dur           float64
	ID                int
	Args              map[string]any
}

// view reads a trace and checks what every reader relies on: it is sorted, rows have
// names, slices of a row nest, and every arrow has a start and then an end, each within
// a slice.
func view(t *testing.T, text []byte) []viewed {
	t.Helper()
	var file struct{ TraceEvents []viewed }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	type row struct{ pid, tid int }
	named, open := map[row]bool{}, map[row][]float64{}
	ranks := map[int]bool{}
	arrows := map[int]int{}
	var events []viewed
	last := 0.0
	for _, e := range file.TraceEvents {
		at := row{e.PID, e.TID}
		if e.PH == "M" {
			named[at] = named[at] || e.Name == "thread_name" && e.Args["name"] != ""
			ranks[e.PID] = ranks[e.PID] || e.Name == "process_name" && e.Args["name"] != ""
			continue
		}
		events = append(events, e)
		if e.TS < last || e.Dur < 0 {
			t.Errorf("after %v: %+v", last, e)
		}
		last = e.TS
		if !named[at] || !ranks[e.PID] {
			t.Errorf("a row without a name: %+v", e)
		}
		for n := len(open[at]); n > 0 && open[at][n-1] < e.TS+1e-4; n-- {
			open[at] = open[at][:n-1]
		}
		switch e.PH {
		case "X":
			if n := len(open[at]); n > 0 && e.TS+e.Dur > open[at][n-1]+1e-4 {
				t.Errorf("overlaps another: %+v", e)
			}
			open[at] = append(open[at], e.TS+e.Dur)
		case "s":
			arrows[e.ID]++
		case "f":
			if arrows[e.ID]--; arrows[e.ID] != 0 || e.BP != "e" {
				t.Errorf("no arrow ends so: %+v", e)
			}
		default:
			t.Errorf("an unknown event: %+v", e)
		}
		if e.PH != "X" && len(open[at]) == 0 {
			t.Errorf("an arrow outside all slices: %+v", e)
		}
	}
	for id, n := range arrows {
		if n != 0 {
			t.Errorf("arrow %d has no end", id)
		}
	}
	return events
}

// traced makes ranks write to logs, and returns the trace.
func traced(t *testing.T, ranks int, keep func(rank int, log *TraceLog, at int64)) []byte {
	t.Helper()
	var parts []*TracePart
	for r := range ranks {
		f, err := CreateTrace(r, ranks)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		log, err := OpenTrace(f)
		if err != nil {
			t.Fatal(err)
		}
		keep(r, log, log.header().began.Load())
		p, err := ReadTrace(f)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, p)
	}
	// The test opens the logs one after the other; set all to the begin of the first.
	for _, p := range parts {
		p.Align(0, parts[0].Began-p.Began, 0, 0)
	}
	var out bytes.Buffer
	if err := WriteTrace(&out, parts); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// short lists slices as "rank row name start+duration", and arrows as "rank>rank".
func short(events []viewed) string {
	var b strings.Builder
	from := map[int]viewed{}
	for _, e := range events {
		switch e.PH {
		case "X":
			fmt.Fprintf(&b, "%d/%d %s %g+%g\n", e.PID, e.TID, e.Name, e.TS, e.Dur)
		case "s":
			from[e.ID] = e
		case "f":
			fmt.Fprintf(&b, "%d>%d %g>%g\n", from[e.ID].PID, e.PID, from[e.ID].TS, e.TS)
		}
	}
	return b.String()
}

func TestTraceOfTwoRanks(t *testing.T) {
	text := traced(t, 2, func(rank int, log *TraceLog, at int64) {
		call := func(name string, shape TraceShape, peer int32, number uint64, start, end int64) TraceRecord {
			return TraceRecord{
				Start: at + start*1000, End: at + end*1000, Call: number, Number: number, Bytes: 8, Count: 2, Size: 2, Peer: peer, Shape: shape,
				Name: log.Text(name), Comm: log.Text("world"), DType: log.Text("float32"), Site: log.Text("main.go:7"), Cause: log.Text("MatMul"),
			}
		}
		late := int64(rank * 30)
		log.Add(TraceRecord{Start: at + 1000, Number: 4, Peer: -1, Shape: TraceStep})
		log.Add(call("AllReduce", TraceAll, -1, 1, 10+late, 50))
		log.Add(call("Broadcast", TraceFromRoot, 1, 2, 60, 70))
		log.Add(call("Gather", TraceToRoot, 0, 3, 80, 90))
		log.Add(TraceRecord{Start: at + 85000, Number: 5, Peer: -1, Shape: TraceStep})
		if rank == 0 {
			log.Add(call("Send", TraceSend, 1, 1, 95, 97))
		} else {
			log.Add(call("Recv", TraceRecv, 0, 1, 92, 99))
			async := call("AllReduce", TraceAll, -1, 4, 91, 120)
			async.Async = true
			log.Add(async)
			wait := call("AllReduce", TraceWait, -1, 0, 100, 110)
			log.Add(wait)
			bad := call("Barrier", TraceAll, -1, 5, 110, 130)
			bad.Fails = true
			log.Add(bad)
		}
	})
	events := view(t, text)
	want := `1/2 compute 0+40
0/2 compute 0+10
0/1 step 4 1+84
1/1 step 4 1+84
0/2 AllReduce 10+40
1/2 AllReduce 40+10
1>0 40>49.999
0/2 compute 50+10
1/2 compute 50+10
0/2 Broadcast 60+10
1/2 Broadcast 60+10
1>0 60>69.999
0/2 compute 70+10
1/2 compute 70+10
0/2 Gather 80+10
1/2 Gather 80+10
1/1 step 5 85+45
0/1 step 5 85+12
1>0 80>89.999
0/2 compute 90+5
1/2 compute 90+2
1/100 AllReduce 91+29
1/2 Recv 92+7
0/2 Send 95+2
0>1 95>98.999
1/2 compute 99+1
1/2 wait for AllReduce 100+10
1/2 Barrier 110+20
`
	if got := short(events); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, e := range events {
		if e.Name == "Broadcast" && (e.Args["bytes"] != 8.0 || e.Args["count"] != 2.0 || e.Args["seq"] != 2.0 || e.Args["dtype"] != "float32" ||
			e.Args["at"] != "main.go:7" || e.Args["cause"] != "MatMul" || e.Args["comm"] != "world" || e.Args["rank"] != 1.0) {
			t.Errorf("a call says %v", e.Args)
		}
	}
}

// TestTraceIsBounded: the log keeps the last records, and the file says how many are lost.
func TestTraceIsBounded(t *testing.T) {
	const ranks = 100
	capacity := traceCapacity(ranks)
	text := traced(t, ranks, func(rank int, log *TraceLog, at int64) {
		if rank > 0 {
			return
		}
		for i := range capacity + 10 {
			log.Add(TraceRecord{Start: at + int64(i), End: at + int64(i+1), Call: uint64(i), Name: log.Text(strings.Repeat("x", i%2000)), Peer: -1})
		}
	})
	events := view(t, text)
	if first := events[0].Args["seq"]; first != 11.0 || len(events) != capacity-1 {
		t.Errorf("%d events, the first %v", len(events), first)
	}
	if want := fmt.Sprintf("the first 11 of %d records", capacity+10); !bytes.Contains(text, []byte(want)) {
		t.Errorf("the file does not say %q", want)
	}
}

func TestClocksOfTwoHosts(t *testing.T) {
	p := &TracePart{Began: 100, Records: []TraceRecord{{Start: 200, End: 300}, {Start: 400}}}
	p.Align(100, 1000, 300, 1010)
	if r := p.Records; p.Began != 1100 || p.Ended != 0 || r[0].Start != 1205 || r[0].End != 1310 || r[1].Start != 1415 || r[1].End != 0 {
		t.Errorf("got %+v", p)
	}
}

// FuzzTrace lets the launcher read a log into which a rank has written random bytes.
func FuzzTrace(f *testing.F) {
	f.Add(uint32(0), []byte{0xff}, uint8(1))
	f.Add(uint32(traceHeaderBytes), []byte("\x00\x01\xff"), uint8(200))
	f.Add(uint32(traceHeaderBytes+traceTextBytes), bytes.Repeat([]byte{1, 0, 0, 0, 0, 0, 0, 0}, 40), uint8(3))
	f.Fuzz(func(t *testing.T, at uint32, data []byte, written uint8) {
		memory, err := unix.Mmap(-1, 0, traceBytes(4), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		log := &TraceLog{memory: memory}
		defer log.Close()
		log.prepare(0, 4)
		h := log.header()
		h.began.Store(1)
		h.textSize.Store(100)
		h.written.Store(uint64(written))
		copy(memory[int(at)%len(memory):], data)
		part := log.Part()
		other := *part
		other.Rank++
		var out bytes.Buffer
		if err := WriteTrace(&out, []*TracePart{part, &other}); err != nil {
			t.Error(err)
		}
		if !json.Valid(out.Bytes()) {
			t.Errorf("no JSON: %q", out.Bytes())
		}
	})
}
