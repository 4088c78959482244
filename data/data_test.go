package data

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
)

// write makes a file with this content.
func write(t testing.TB, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTokens(t *testing.T) {
	ids := []int32{0, 1, 65535, 256, 7}
	for _, width := range []int{2, 4} {
		packed, err := AppendTokens(nil, ids, width)
		if err != nil {
			t.Fatal(err)
		}
		tokens, err := OpenTokens(write(t, string(packed)), width)
		if err != nil {
			t.Fatal(err)
		}
		for i, id := range ids {
			if tokens.At(i) != id || tokens.Len() != len(ids) {
				t.Errorf("width %d: id %d of %d is %d, want %d", width, i, tokens.Len(), tokens.At(i), id)
			}
		}
		if err := errors.Join(tokens.Close(), tokens.Close()); err != nil {
			t.Error(err)
		}
	}
	for _, id := range []int32{-1, 65536} {
		if _, err := AppendTokens(nil, []int32{id}, 2); err == nil {
			t.Errorf("%d fits in 2 bytes", id)
		}
	}
	if _, err := OpenTokens(write(t, "abc"), 2); err == nil || !strings.Contains(err.Error(), "3 bytes") {
		t.Errorf("half an id: %v", err)
	}
	if _, err := OpenTokens(t.TempDir(), 2); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a folder: %v", err)
	}
	if empty, err := OpenTokens(write(t, ""), 4); err != nil || empty.Len() != 0 {
		t.Errorf("an empty file: %v", err)
	}
}

func TestLinesAndJSON(t *testing.T) {
	for text, want := range map[string][]string{"": nil, "a\nb": {"a", "b"}, "a\n\nb\r\n": {"a", "", "b"}, "\n": {""}} {
		l, err := OpenLines(write(t, text))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range l.Len() {
			got = append(got, string(l.At(i)))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q has the lines %q, want %q", text, got, want)
		}
	}
	type record struct{ Text string }
	j, err := OpenJSON[record](write(t, `{"text":"one"}`+"\n"+`{"text":2}`+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	if r, err := j.At(0); err != nil || r.Text != "one" || j.Len() != 2 {
		t.Errorf("%+v of %d, %v", r, j.Len(), err)
	}
	if _, err := j.At(1); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("a number for a text: %v", err)
	}
	type lost struct{ text string }
	if _, err := OpenJSON[lost](write(t, `{"text":"one"}`)); err == nil || !strings.Contains(err.Error(), "the field text of data.lost") {
		t.Errorf("a field that stays empty, unlike that of %v: %v", lost{text: "one"}, err)
	}
}

func TestTable(t *testing.T) {
	table, err := OpenTable(write(t, "id\ttext\n1\t\"a\tb\nc \"\"d\"\"\"\n2\te\n3\n"), '\t')
	if err != nil {
		t.Fatal(err)
	}
	if row, err := table.At(0); err != nil || !slices.Equal(row, []string{"1", "a\tb\nc \"d\""}) || table.Len() != 3 {
		t.Errorf("row %q of %d, %v", row, table.Len(), err)
	}
	if _, err := table.At(2); err == nil || !strings.Contains(err.Error(), "row 2, from 0: 1 fields, and 2 columns are") {
		t.Errorf("a short row: %v", err)
	}
	if i, err := table.Column("text"); i != 1 || err != nil {
		t.Errorf("column %d, %v", i, err)
	}
	if _, err := table.Column("no"); err == nil || !strings.Contains(err.Error(), `["id" "text"]`) {
		t.Errorf("a column that is not there: %v", err)
	}
	bad, err := OpenTable(write(t, "id,text\n1,a\n\"b\"c,d\n"), ',')
	if err != nil {
		t.Fatal(err)
	}
	_, err = bad.At(1)
	if want := `row 1, from 0: extraneous or missing " in quoted-field: "\"b\"c,d"`; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("a row with a quote: %v, want %s", err, want)
	}
	if _, err := OpenTable(write(t, "\"b\"c,d\n"), ','); err == nil || !strings.Contains(err.Error(), "the names of the columns: extraneous") {
		t.Errorf("names with a quote: %v", err)
	}
	if _, err := OpenTable(write(t, ""), ','); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("an empty table: %v", err)
	}
}

// FuzzTable compares the rows with those of encoding/csv, which reads from the beginning.
func FuzzTable(f *testing.F) {
	f.Add("a,b\n1,\"x\ny\"\n2,\"\"\"\"\n")
	f.Add("a\n\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		table, err := OpenTable(write(t, text), ',')
		if err != nil {
			return
		}
		defer table.Close()
		r := csv.NewReader(strings.NewReader(text))
		want, err := r.ReadAll()
		if err != nil {
			for i := range table.Len() {
				_, _ = table.At(i) // an error at most
			}
			return
		}
		for i, k := 0, 1; i < table.Len(); i++ {
			if len(bytes.TrimRight(table.Lines.At(i+1), "\r\n")) == 0 {
				continue // encoding/csv leaves out empty lines
			}
			row, err := table.At(i)
			if err != nil || k >= len(want) || !slices.Equal(row, want[k]) {
				t.Fatalf("row %d is %q, %v, want %q", i, row, err, want[min(k, len(want)-1)])
			}
			k++
		}
	})
}

func TestOrder(t *testing.T) {
	o, err := NewOrder(10, 4, 1)
	if err != nil || o.Steps() != 3 {
		t.Fatal(o, err)
	}
	var epochs [2][]int
	for step := range 6 {
		epochs[step/3] = append(epochs[step/3], o.Batch(step)...)
	}
	again, _ := NewOrder(10, 4, 1)
	if got := again.Batch(4); !slices.Equal(got, epochs[1][4:8]) {
		t.Errorf("resumed at step 4: %v, want %v", got, epochs[1][4:8])
	}
	if slices.Equal(epochs[0], epochs[1]) {
		t.Error("two epochs have one order")
	}
	for _, e := range epochs {
		if slices.Sort(e); !slices.Equal(e, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
			t.Errorf("an epoch has %v", e)
		}
	}
	if _, err := NewOrder(0, 4, 1); err == nil {
		t.Error("no records: no error")
	}
}

func TestPrefetch(t *testing.T) {
	p := Prefetch(3, 2, func(step int) (int, error) {
		if step == 6 {
			return 0, errors.New("the end")
		}
		return step * step, nil
	})
	for _, want := range []int{9, 16, 25} {
		if got, err := p.Next(); got != want || err != nil {
			t.Errorf("%d, %v, want %d", got, err, want)
		}
	}
	for range 3 { // with no wait for a load that there will not be
		if _, err := p.Next(); err == nil || err.Error() != "the end" {
			t.Errorf("%v", err)
		}
	}
	p.Close()
	p.Close()
	if _, err := p.Next(); err == nil || !strings.Contains(err.Error(), "after Close") {
		t.Errorf("%v", err)
	}
}

// What load throws, as a Batch on an axis that is not there does, is its error.
func TestPrefetchThrows(t *testing.T) {
	p := Prefetch(0, 1, func(int) (int, error) {
		dtensor.Throw(errors.New("no such axis"))
		return 0, nil
	})
	defer p.Close()
	if _, err := p.Next(); err == nil || !strings.HasPrefix(err.Error(), "no such axis (at data/data_test.go:") {
		t.Errorf("%v", err)
	}
}

// Empty lines and a mark of UTF-8 are no rows, wherever they are.
func TestEmptyLines(t *testing.T) {
	const text = "\ufeff\n\"id\",text\n\r\n1,a\n\n\n2,\"b\n\nc\"\n\n"
	table, err := OpenTable(write(t, text), ',')
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	all := [][]string{table.Columns()}
	for i := range table.Len() {
		row, err := table.At(i)
		if err != nil {
			t.Error(err)
		}
		all = append(all, row)
	}
	want, err := csv.NewReader(strings.NewReader(text[len("\ufeff"):])).ReadAll()
	if err != nil || !reflect.DeepEqual(all, want) {
		t.Errorf("%q, want %q, %v", all, want, err)
	}
	j, err := OpenJSON[int](write(t, "\ufeff1\n\n2\r\n\nx\n\n"))
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if a, err := j.At(1); a != 2 || err != nil || j.Len() != 3 {
		t.Errorf("%d, %v, of %d", a, err, j.Len())
	}
	if _, err := j.At(2); err == nil || !strings.Contains(err.Error(), "line 5: ") {
		t.Errorf("%v", err)
	}
}

func TestShare(t *testing.T) {
	commtest.Run(t, 3, func(ctx context.Context, world *comm.Comm) error {
		for _, want := range []string{"", "some bytes"} {
			got, err := Share(ctx, world, func() ([]byte, error) {
				if world.Rank() != 0 {
					return nil, errors.New("made on another rank")
				}
				return []byte(want), nil
			})
			if err != nil || string(got) != want {
				return fmt.Errorf("%q, %w, want %q", got, err, want)
			}
		}
		return nil
	})
}

// What no batch can be is refused on all ranks, with what was given.
func TestRefusals(t *testing.T) {
	text := write(t, "1\n2\n")
	commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
		mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: 2})
		if err != nil {
			return err
		}
		order, err := NewOrder(10, 4, 1)
		if err != nil {
			return err
		}
		w := NewWindows(make([]int32, 10), 3)
		lines, err1 := OpenLines(text)
		table, err2 := OpenTable(text, ',')
		list, err3 := OpenJSON[int](text)
		tokens, err4 := OpenTokens(text, 2)
		closed, err5 := OpenTokens(text, 2)
		if err := errors.Join(err1, err2, err3, err4, err5, closed.Close()); err != nil {
			return err
		}
		for want, f := range map[string]func(){
			"data: Order.Batch: step -1":                           func() { order.Batch(-1) },
			"data: Order.Batch: step 0 of 0":                       func() { new(Order).Batch(0) },
			"data: NewWindows: windows of 0":                       func() { NewWindows(nil, 0) },
			"data: Batch: window -1":                               func() { w.Batch(mesh, "dp", -1, 2) },
			"data: FillWindows: window -1":                         func() { FillWindows(w, -1, make([]int64, 3), make([]int64, 3)) },
			"data: 4 inputs and 3 targets":                         func() { FillWindows(w, 0, make([]int64, 4), make([]int64, 3)) },
			"data: 3 inputs and 3 targets":                         func() { FillWindows(new(Windows), 0, make([]int64, 3), make([]int64, 3)) },
			"data: Prefetch: load is nil; give":                    func() { Prefetch[int](0, 1, nil) },
			"data: At: " + lines.path + " has no record 2, but 2":  func() { lines.At(2) },
			"data: At: " + lines.path + " has no record -1":        func() { lines.At(-1) },
			"data: At: " + table.path + " has no record 1, but 1":  func() { _, err := table.At(1); dtensor.Check(err) },
			"data: At: " + list.path + " has no record 2":          func() { _, err := list.At(2); dtensor.Check(err) },
			"data: At: " + tokens.path + " has no record 2, but 2": func() { tokens.At(2) },
			"data: At: " + closed.path + " is closed":              func() { closed.At(0) },
		} {
			if err := dtensor.Try(ctx, mesh, f); err == nil || !strings.HasPrefix(err.Error(), want) {
				return fmt.Errorf("got %v, want %q", err, want)
			}
		}
		return nil
	})
}
