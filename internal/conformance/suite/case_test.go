package suite

import (
	"math"
	"strings"
	"testing"
)

func TestReadNumbers(t *testing.T) {
	const line = `{"name":"n","op":"exp","mesh":{"shape":[1]},"inputs":{"input":{"dtype":"float32","shape":[6],` +
		`"data":[1.5, -Infinity,Infinity,NaN,true,false],"placements":["R"]}},"args":{"dim":-1,"norm_type": Infinity},` +
		`"expect":{"error":"x"},"tol":{"rtol":0,"atol":0}}`
	cases, err := read(strings.NewReader(line), "t")
	if err != nil {
		t.Fatal(err)
	}
	got := cases[0].Inputs["input"].Data
	if got[0] != 1.5 || !math.IsInf(got[1], -1) || !math.IsInf(got[2], 1) || !math.IsNaN(got[3]) || got[4] != 1 || got[5] != 0 {
		t.Errorf("got %v", got)
	}
	if d := cases[0].Args.Dim; len(d) != 1 || d[0] != -1 {
		t.Errorf("dim = %v", d)
	}
	if p := cases[0].Args.NormType; p == nil || !math.IsInf(float64(*p), 1) {
		t.Errorf("norm_type = %v", p)
	}
}

func TestReadRefuses(t *testing.T) {
	for _, line := range []string{
		`{`,
		`{"name":"no mesh","expect":{"error":"x"}}`,
		`{"name":"nothing expected","mesh":{"shape":[1]}}`,
		`{"name":"too few","mesh":{"shape":[1]},"inputs":{"x":{"shape":[2],"data":[1],"placements":["R"]}},"expect":{"error":"x"}}`,
		`{"name":"placements","mesh":{"shape":[1,1]},"inputs":{"x":{"shape":[1],"data":[1],"placements":["R"]}},"expect":{"error":"x"}}`,
		`{"name":"no gradient","mesh":{"shape":[1]},"inputs":{},"want_grad":["x"],"expect":{"error":"x"}}`,
		`{"name":"not a number","mesh":{"shape":[1]},"inputs":{"x":{"shape":[1],"data":["q"],"placements":["R"]}},"expect":{"error":"x"}}`,
	} {
		if _, err := read(strings.NewReader(line), "file"); err == nil || !strings.Contains(err.Error(), "file:1") {
			t.Errorf("%s: got %v, want an error that names file:1", line, err)
		}
	}
}

func TestCompareFails(t *testing.T) {
	want := &Array{DType: "float32", Shape: []int{2, 2}, Data: numbers{1, 2, math.NaN(), math.Inf(1)}}
	tol := Tol{Rtol: 1e-3}
	if err := compare("x", []int{2, 2}, []float64{1, 2.001, math.NaN(), math.Inf(1)}, want, tol); err != nil {
		t.Error(err)
	}
	for _, got := range [][]float64{{1, 2.1, math.NaN(), math.Inf(1)}, {1, 2, 3, math.Inf(1)}, {1, math.NaN(), math.NaN(), math.Inf(1)},
		{1, 2, math.NaN(), 5}} {
		if compare("x", []int{2, 2}, got, want, tol) == nil {
			t.Errorf("%v passes", got)
		}
	}
	if compare("x", []int{4}, want.Data, want, tol) == nil {
		t.Error("a wrong shape passes")
	}
	if err := compare("x", []int{2, 2}, []float64{1, 7, math.NaN(), math.Inf(1)}, want, tol); !strings.Contains(err.Error(), "[0 1]") {
		t.Errorf("%v does not say where", err)
	}
	ints := &Array{DType: "int64", Shape: []int{1}, Data: numbers{1000000}}
	if compare("x", []int{1}, []float64{1000001}, ints, tol) == nil {
		t.Error("integers are compared with a tolerance")
	}
}

func TestEveryCaseFileLoads(t *testing.T) {
	cases, err := Load("../testdata")
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) < 1000 {
		t.Errorf("only %d cases", len(cases))
	}
}
