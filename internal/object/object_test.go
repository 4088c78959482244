package object

import (
	"encoding/gob"
	"fmt"
	"math/big"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
)

type mixed struct {
	A, B int
	M    map[string]int
	P    *int
	S    []string
}

// again returns v after a journey.
func again[T any](t *testing.T, v T) {
	t.Helper()
	data, err := Encode(v)
	if err != nil {
		t.Errorf("Encode(%#v): %v", v, err)
		return
	}
	got, err := Decode[T](data)
	if err != nil || !reflect.DeepEqual(got, v) {
		t.Errorf("Decode(Encode(%#v)) = %#v, %v", v, got, err)
	}
}

func TestValuesComeAsTheyWent(t *testing.T) {
	gob.Register(time.Time{})
	zero := 0
	again(t, mixed{})
	again(t, mixed{A: 1, M: map[string]int{"x": 0}})
	again(t, &mixed{B: 2})
	again(t, &zero)
	again(t, (*int)(nil))
	again[any](t, nil)
	again[any](t, 3)
	again[any](t, "text")
	again(t, map[string]any{"n": 1, "t": time.Unix(3, 4).UTC(), "s": []string{"a"}})
	again[error](t, nil)
	again(t, big.NewInt(7))
	again(t, *big.NewInt(7))
	again(t, new(big.NewInt(7)))
	again(t, rand.NewPCG(1, 2))
	again(t, new(time.Unix(3, 4)))
	again(t, "")
	again(t, map[string]int{})
	again(t, []string{"a", ""})
}

type hidden struct {
	A int
	b int
}

type embeds struct {
	hidden
	C int
}

type list struct {
	Next *list
	At   time.Time
	_    int
	_    struct{}
}

// A field that would be lost on the way is an error, wherever it is.
func TestFieldsThatGobLeavesOut(t *testing.T) {
	refused := func(name string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "the field "+name+" of object.") {
			t.Errorf("a field %s: %v", name, err)
		}
	}
	_, err := Encode(hidden{1, 2})
	refused("b", err)
	_, err = Encode(map[string][]*hidden{})
	refused("b", err)
	_, err = Encode(map[hidden]int{})
	refused("b", err)
	_, err = Encode(&[1]struct{ H hidden }{})
	refused("b", err)
	_, err = Encode(embeds{C: 1})
	refused("hidden", err)
	_, err = Encode(map[string]any{"x": 1, "y": []any{"z", &hidden{1, 2}}})
	refused("b", err)
	_, err = Encode[any](hidden{1, 2})
	refused("b", err)
	_, err = Encode(struct {
		A []fmt.Stringer
		B *any
	}{B: new(any(embeds{}))})
	refused("hidden", err)
	_, err = Encode(struct{ F func() }{})
	if err == nil || !strings.Contains(err.Error(), "the field F of struct") {
		t.Errorf("a field that is a function: %v", err)
	}
	again(t, list{Next: &list{}, At: time.Unix(1, 0).UTC()})
}

func TestWhatGobRefuses(t *testing.T) {
	ring := map[string]any{}
	ring["again"] = &ring
	if _, err := Encode(ring); err == nil || !strings.Contains(err.Error(), "what it is part of") {
		t.Errorf("a value that holds itself: %v", err)
	}
	if _, err := Encode(make(chan int)); err == nil || !strings.Contains(err.Error(), "chan") {
		t.Errorf("a channel: %v", err)
	}
	if _, err := Encode(new((*big.Int)(nil))); err == nil || !strings.Contains(err.Error(), "pointer to a nil *big.Int") {
		t.Errorf("a pointer to nil: %v", err)
	}
	if _, err := Encode([]any{func() {}}); err == nil {
		t.Error("a function gives no error")
	}
	data, err := Encode("text")
	if err != nil {
		t.Fatal(err)
	}
	if v, err := Decode[int](data); err == nil {
		t.Errorf("text is the number %d", v)
	}
	if _, err := Decode[int](nil); err == nil {
		t.Error("no bytes are a number")
	}
}

// Of what package encoding/json leaves out an error names the field, unless a tag says so.
func TestCheckJSON(t *testing.T) {
	if err := CheckJSON(reflect.TypeFor[rand.PCG]()); err == nil || !strings.Contains(err.Error(), "the field hi of rand.PCG") {
		t.Errorf("a generator of random numbers: %v", err)
	}
	if err := CheckJSON(reflect.TypeFor[embeds]()); err == nil || !strings.Contains(err.Error(), "the field b of object.hidden") {
		t.Errorf("a field of an embedded struct: %v", err)
	}
	type good struct {
		At   time.Time
		Of   map[string][]*big.Int
		Func func() `json:"-"`
	}
	if err := CheckJSON(reflect.TypeFor[good]()); err != nil {
		t.Error(err)
	}
}

type optional struct {
	Decay *float64
	On    *bool
	Names *[]string
	Deep  **int
	At    *time.Time
	In    *mixed
	Six   *[6]int
}

// TestPointers: what gob leaves out since it is zero would arrive as a nil pointer, which in a struct says that nothing is set.
func TestPointers(t *testing.T) {
	var zero, no = 0.0, false
	var null *int
	for _, v := range []any{optional{Decay: &zero}, &optional{On: &no}, []optional{{}, {Names: &[]string{}}},
		map[string]optional{"a": {Deep: &null}}, struct{ V any }{optional{Decay: &zero}}, struct{ O *optional }{&optional{On: &no}}} {
		at := reflect.New(reflect.TypeOf(v))
		at.Elem().Set(reflect.ValueOf(v))
		if _, err := EncodeAt(at); err == nil || !strings.Contains(err.Error(), "which points to a zero and would arrive as nil") {
			t.Errorf("Encode(%#v): %v, want an error that names the field", v, err)
		}
	}
	one, yes := 1.0, true
	seven := 7
	deep := &seven
	again(t, optional{Decay: &one, On: &yes, Names: &[]string{""}, Deep: &deep, At: &time.Time{}, In: &mixed{}, Six: &[6]int{}})
	again(t, []*float64{&zero, &one, &one}) // elements are written whatever they are
	again(t, map[string]*bool{"a": &no})
	again(t, &zero)
}

type node struct {
	Value int
	Next  *node
	More  []*node
	Any   any
}

// TestEndlessValues: gob would write them until the stack is full, which ends the process.
func TestEndlessValues(t *testing.T) {
	ring := &node{Value: 1, Next: &node{Value: 2}}
	ring.Next.Next = ring
	tree := &node{Value: 1}
	tree.More = []*node{{Value: 2}, tree}
	hidden := &node{Value: 1}
	hidden.Any = hidden
	for _, v := range []*node{ring, tree, hidden} {
		if _, err := Encode(v); err == nil || !strings.Contains(err.Error(), "points to what it is part of") {
			t.Errorf("Encode of an endless value: %v, want an error", err)
		}
	}
	leaf := &node{Value: 3}
	again(t, node{Value: 1, Next: leaf, More: []*node{leaf, {Value: 4}}}) // two pointers to one value are no ring
}

// A value that is decoded as a type of other fields is an error that names both types: gob would leave fields out.
func TestTypesThatDiffer(t *testing.T) {
	type point struct{ X, Y float64 }
	type place struct{ X, Y, Z float64 }
	type list struct {
		Value int
		Next  *list
	}
	data, err := Encode([]place{{1, 2, 3}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Decode[[]point](data)
	want := "it is []object.place []{X float; Y float; Z float}, and this rank takes []object.point []{X float; Y float}"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	for cut := range 12 {
		if _, err := Decode[[]place](data[:cut]); err == nil {
			t.Errorf("the first %d bytes are no error", cut)
		}
	}
	type spot struct{ X, Y, Z float32 } // of another name and size
	if got, err := Decode[[]*spot](data); err != nil || *got[0] != (spot{1, 2, 3}) {
		t.Errorf("got %v, %v", got, err)
	}
	if data, err = Encode(list{1, &list{2, nil}}); err != nil {
		t.Fatal(err)
	}
	if got, err := Decode[list](data); err != nil || got.Next.Value != 2 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := Decode[place](data); err == nil || !strings.Contains(err.Error(), "object.list {Value int; Next ↑2}") {
		t.Errorf("got %v", err)
	}
}
