package metrics

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
)

func TestMeansOverRanks(t *testing.T) {
	commtest.Run(t, 3, func(ctx context.Context, world *comm.Comm) error {
		var m Means
		for i := range 2 {
			m.Add("loss", float64(world.Rank()+i), float64(world.Rank())) // (0.5 + 2·1.5·… ) below
			m.Add("nothing", math.NaN(), 0)
		}
		values, err := m.Reduce(ctx, world)
		if err != nil {
			return err
		}
		// weights 0, 1, 2 twice; values r and r+1: (1·(1+2) + 2·(2+3)) / (2·3)
		if len(values) != 2 || values[0] != (Value{"loss", 13.0 / 6}) || !math.IsNaN(values[1].Value) {
			return fmt.Errorf("means %v", values)
		}
		if values, err = m.Reduce(ctx, world); err != nil || len(values) != 0 {
			return fmt.Errorf("after Reduce there are still %v, %v", values, err)
		}
		return nil
	})
}

func TestMeansOfOtherNames(t *testing.T) {
	for name, add := range map[string]func(m *Means, rank int){
		"other names": func(m *Means, rank int) { m.Add(fmt.Sprint("of rank ", rank/2), 1, 1) },
		"in another order": func(m *Means, rank int) {
			for i := range 2 {
				m.Add(fmt.Sprint((i+rank/2)%2), 1, 1)
			}
		},
	} {
		commtest.Run(t, 3, func(ctx context.Context, world *comm.Comm) error {
			var m Means
			add(&m, world.Rank())
			before := m
			if _, err := m.Reduce(ctx, world); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("rank %d of 3 has added", world.Rank())) {
				return fmt.Errorf("%s: %v", name, err)
			}
			if !reflect.DeepEqual(m, before) {
				return fmt.Errorf("%s: the error changed %v to %v", name, before, m)
			}
			return nil
		})
	}
}

// A rank that has added fewer names is an error that names those of both ranks.
func TestMeansOfFewerNames(t *testing.T) {
	commtest.Run(t, 3, func(ctx context.Context, world *comm.Comm) error {
		var m Means
		m.Add("loss", 1, 1)
		if world.Rank() == 1 {
			m.Add("clicks", 1, 1)
		}
		_, err := m.Reduce(ctx, world)
		if !errors.Is(err, comm.ErrMismatch) || !strings.Contains(err.Error(), `Means of ["loss" "clicks"]`) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
}

func TestAccuracyAndPerplexity(t *testing.T) {
	if correct, counted := Accuracy([]int64{1, 2, 3, 4}, []int64{1, 0, -100, 4}, -100); correct != 2 || counted != 3 {
		t.Errorf("%d of %d", correct, counted)
	}
	if p := Perplexity(10*math.Log(8), 10); math.Abs(p-8) > 1e-12 {
		t.Errorf("perplexity %v, want 8", p)
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	want := map[string]string{
		"a.jsonl": `{"step":1,"loss":2.5,"a \"name\"":null}` + "\n" + `{"step":2,"loss":0.1}` + "\n",
		"a.csv":   "step,loss,\"a \"\"name\"\"\"\n1,2.5,NaN\n2,0.1,\n",
	}
	for name, text := range want {
		path := filepath.Join(dir, name)
		for step := 1; step <= 2; step++ { // opened a second time, as a run does that goes on
			w, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			values := []Value{{"loss", 2.5}, {`a "name"`, math.NaN()}}
			if step == 2 {
				values = []Value{{"loss", 0.1}}
			}
			if err := w.Write(step, values...); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%s: %q, %v, want %q", name, got, err, text)
		}
	}
	w, err := Open(filepath.Join(dir, "a.csv"))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(3, Value{"other", 1}); err == nil || !strings.Contains(err.Error(), "other is none of them") {
		t.Errorf("a column that is not there: %v", err)
	}
	w.Close()
	bad := filepath.Join(dir, "bad.csv")
	if err := os.WriteFile(bad, []byte("no,such\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(bad); err == nil || !strings.Contains(err.Error(), "the column step") {
		t.Errorf("a file of something else: %v", err)
	}
	for _, name := range []string{"no/such/a.csv", "a.csv/events"} {
		if _, err := Open(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A closer is a buffer that is closed once.
type closer struct {
	bytes.Buffer
	closed int
}

func (c *closer) Close() error {
	c.closed++
	return nil
}

func TestCSVGoesToAnyWriter(t *testing.T) {
	var out closer
	w := NewCSV(&out)
	err := errors.Join(w.Write(7, Value{"loss", 2.5}, Value{"rate", 1}), w.Write(8, Value{"rate", 0.5}), w.Close())
	if want := "step,loss,rate\n7,2.5,1\n8,,0.5\n"; err != nil || out.String() != want || out.closed != 1 {
		t.Errorf("%q, closed %d times, %v, want %q", out.String(), out.closed, err, want)
	}
}

func TestConsole(t *testing.T) {
	var out bytes.Buffer
	err := NewConsole(&out).Write(7, Value{"loss", 2.34567}, Value{"rate", 3e-4})
	if err != nil || out.String() != "step 7  loss 2.346  rate 0.0003\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// TestTensorBoard reads an event file back by the format's description.
func TestTensorBoard(t *testing.T) {
	dir := t.TempDir()
	w, err := Open(filepath.Join(dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	w.(*tensorBoard).now = func() time.Time { return time.Unix(1700000000, 0) }
	if err := w.Write(300, Value{"loss", 1.5}, Value{"rate", -2}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	names, _ := filepath.Glob(filepath.Join(dir, "run", "events.out.tfevents.*"))
	if len(names) != 1 {
		t.Fatalf("files %v", names)
	}
	data, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	var events [][]byte
	for len(data) > 0 {
		n := binary.LittleEndian.Uint64(data)
		if binary.LittleEndian.Uint32(data[8:]) != masked(data[:8]) || binary.LittleEndian.Uint32(data[12+n:]) != masked(data[12:12+n]) {
			t.Fatal("a checksum is wrong")
		}
		events, data = append(events, data[12:12+n]), data[16+n:]
	}
	if len(events) != 2 || !bytes.HasSuffix(events[0], []byte("\x10\x00\x1a\rbrain.Event:2")) {
		t.Fatalf("%d events, the first %q", len(events), events[0])
	}
	want := "\x09" + string(binary.LittleEndian.AppendUint64(nil, math.Float64bits(1700000000))) + "\x10\xac\x02" +
		"\x2a\x1a\x0a\x0b\x0a\x04loss\x15\x00\x00\xc0\x3f\x0a\x0b\x0a\x04rate\x15\x00\x00\x00\xc0"
	if string(events[1]) != want {
		t.Errorf("event %q, want %q", events[1], want)
	}
	// As every file begins that TensorBoard's own writer has made.
	if sum := masked(binary.LittleEndian.AppendUint64(nil, 24)); sum != 0x224b7fa3 {
		t.Errorf("the checksum of the length 24 is %#x", sum)
	}
}
