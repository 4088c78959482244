package object

import (
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
	zero := 0
	again(t, mixed{})
	again(t, mixed{A: 1, M: map[string]int{"x": 0}})
	again(t, &mixed{B: 2})
	again(t, &zero)
	again(t, (*int)(nil))
	again[any](t, nil)
	again[any](t, 3)
	again[any](t, "text")
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
	_, err = Encode(struct{ F func() }{})
	if err == nil || !strings.Contains(err.Error(), "the field F of struct") {
		t.Errorf("a field that is a function: %v", err)
	}
	again(t, list{Next: &list{}, At: time.Unix(1, 0).UTC()})
}

func TestWhatGobRefuses(t *testing.T) {
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
