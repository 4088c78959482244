package kernel

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/internal/fold"
	"github.com/gorun-spmd/gorun/internal/testenv"
)

// families are the tables, for what is made from them.
var families = []struct {
	op   string // the Go type
	list any
}{
	{"UnaryOp", UnaryOps()}, {"BinaryOp", BinaryOps()}, {"CompareOp", CompareOps()},
	{"ReduceOp", ReduceOps()}, {"RowOp", RowOps()}, {"RandomOp", RandomOps()},
}

func namesOf(list any) []string { return strings.Fields(strings.Trim(fmt.Sprint(list), "[]")) }

// TestGenerated holds the operators in the CUDA sources to the tables; go generate writes
// them anew.
func TestGenerated(t *testing.T) {
	var c bytes.Buffer
	fmt.Fprint(&c, "// Code generated from the tables of package tensor/kernel; DO NOT EDIT.\n#pragma once\n")
	upper := func(name string) string {
		return strings.ToUpper(regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(name, "${1}_$2"))
	}
	each := func(macro string, names []string) {
		fmt.Fprintf(&c, "#define %s_OPS(X) X(%s)\n", macro, strings.Join(names, ") X("))
	}
	for _, f := range families {
		var names, ints []string
		for i, name := range namesOf(f.list) {
			names = append(names, upper(strings.TrimPrefix(name, "Fill")))
			if f.op == "UnaryOp" && UnaryOp(i).Row().Integer != nil {
				ints = append(ints, upper(name))
			}
		}
		macro := strings.ToUpper(strings.TrimSuffix(f.op, "Op"))
		fmt.Fprintf(&c, "\nenum %s { %s };\n", f.op, strings.Join(names, ", "))
		each(macro, names)
		if ints != nil {
			each(macro+"_INT", ints)
		}
	}
	var folds []string
	for op := fold.NoOp; op.String() != "invalid"; op++ {
		folds = append(folds, "FOLD_"+strings.ToUpper(op.String()))
	}
	fmt.Fprintf(&c, "\n// The operations of package comm.\nenum FoldOp { %s };\n", strings.Join(folds, ", "))
	testenv.Golden(t, "../cuda/kernels/ops.h", c.String())
	if t.Failed() {
		t.Log("go generate ./tensor/kernel ./tensor/cuda writes them anew")
	}
}

// TestRowsAreWhole says what a row lacks.
func TestRowsAreWhole(t *testing.T) {
	for _, op := range UnaryOps() {
		if r := op.Row(); r.Name == "" || r.Value == nil || r.Grad == nil {
			t.Errorf("unary operator %d %q has no name, Value or Grad", op, r.Name)
		}
	}
	for _, op := range BinaryOps() {
		if r := op.Row(); r.Name == "" || r.Value == nil && r.Integer == nil {
			t.Errorf("binary operator %d %q has no name, or neither Value nor Integer", op, r.Name)
		}
	}
	for _, f := range families {
		for i, name := range namesOf(f.list) {
			if name == "" || strings.HasPrefix(name, "operator") {
				t.Errorf("%s %d has no name", f.op, i)
			}
		}
	}
}
