// Package structs knows the types of elements that are no numbers: structs and arrays.
package structs

import (
	"fmt"
	"hash/fnv"
	"math"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
)

// A Type is an element type that has no DType: a struct or an array. Its elements are
// moved as bytes.
type Type struct {
	Name    string // "main.Particle"
	Size    int    // bytes
	Hash    uint32 // of both, see Hash
	Problem error  // why its values cannot be moved; nil: they can
}

// An ID is the number of a Type, from 1. A buffer has it in place of a pointer, so that it stays small.
type ID uint16

// known has the Types that were used, in this process: facts that never change, kept
// because it takes a microsecond to find them.
var known struct {
	ids sync.Map // ID by reflect.Type
	mu  sync.Mutex
	all atomic.Pointer[[]*Type] // by ID-1
}

// Type returns the type with a number.
func (id ID) Type() *Type { return (*known.all.Load())[id-1] }

// Of returns the number of t.
func Of(t reflect.Type) ID {
	if id, ok := known.ids.Load(t); ok {
		return id.(ID)
	}
	s := &Type{Name: t.String(), Size: max(1, int(t.Size())), Hash: Hash(t.String(), int(t.Size()))}
	if path := pointerIn(t); path != "" {
		s.Problem = fmt.Errorf("%s holds a pointer (%s), which means nothing on another rank; "+
			"use numbers and arrays of numbers, or move the value by BroadcastObject, ScatterObjects, GatherObjects, "+
			"AllGatherObjects or AllToAllObjects", s.Name, path)
	} else if t.Size() == 0 {
		s.Problem = fmt.Errorf("%s has no bytes; use a type that has some", s.Name)
	}
	known.mu.Lock()
	defer known.mu.Unlock()
	if id, ok := known.ids.Load(t); ok { // another goroutine was first
		return id.(ID)
	}
	var all []*Type
	if p := known.all.Load(); p != nil {
		all = *p
	}
	if len(all) == math.MaxUint16 {
		panic(fmt.Sprintf("comm: a program with more than %d types of elements", math.MaxUint16))
	}
	all = append(slices.Clip(all), s)
	known.all.Store(&all)
	id := ID(len(all))
	known.ids.Store(t, id)
	return id
}

// Hash hashes a name and the size of an element.
func Hash(name string, size int) uint32 {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%d", name, size)
	return h.Sum32()
}

// pointerIn returns the path to a pointer within t, "" if there is none.
func pointerIn(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Array:
		return pointerIn(t.Elem())
	case reflect.Struct:
		for field := range t.Fields() {
			if p := pointerIn(field.Type); p != "" {
				return field.Name + "." + p
			}
		}
		return ""
	case reflect.Pointer, reflect.UnsafePointer, reflect.Slice, reflect.String, reflect.Map, reflect.Chan, reflect.Func, reflect.Interface,
		reflect.Uintptr:
		return t.Kind().String()
	}
	return ""
}
