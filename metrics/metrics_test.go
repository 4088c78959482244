package metrics

import (
	"bytes"
	"compress/gzip"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/internal/fault"
)

// slowAUC counts pairs.
func slowAUC(scores, labels []float32) float64 {
	good, pairs := 0.0, 0.0
	for i := range scores {
		for j := range scores {
			if labels[i] == 1 && labels[j] == 0 {
				pairs++
				if scores[i] > scores[j] {
					good++
				} else if scores[i] == scores[j] {
					good += 0.5
				}
			}
		}
	}
	return good / pairs
}

func TestAUC(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := 2; n < 60; n++ {
		scores, labels := make([]float32, n), make([]float32, n)
		for i := range n {
			scores[i], labels[i] = float32(rng.IntN(8)), float32(rng.IntN(2))
		}
		labels[0], labels[1] = 0, 1
		if got, ok := AUC(scores, labels); !ok || math.Abs(got-slowAUC(scores, labels)) > 1e-12 {
			t.Fatalf("%v %v: %v, want %v", scores, labels, got, slowAUC(scores, labels))
		}
	}
	if _, ok := AUC([]float32{1, 2}, []float32{1, 1}); ok {
		t.Error("an area without both labels")
	}
	if _, ok := AUC([]float32{1, float32(math.NaN()), 2}, []float32{1, 0, 0}); ok {
		t.Error("an area of a score that is no number")
	}
	err := func() (err error) {
		defer fault.Catch(&err)
		AUC([]float32{1, 2}, []float32{1})
		return nil
	}()
	const want = "metrics: AUC: 2 predictions and 1 labels; give as many of each (at metrics/metrics_test.go:"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Error(err)
	}
}

// slowAP looks at all scores for each positive example.
func slowAP(scores, labels []float32) float64 {
	sum, clicks := 0.0, 0.0
	for i := range scores {
		if labels[i] == 0 {
			continue
		}
		good, all := 0.0, 0.0
		for j := range scores {
			if scores[j] >= scores[i] {
				good, all = good+float64(labels[j]), all+1
			}
		}
		sum, clicks = sum+good/all, clicks+1
	}
	return sum / clicks
}

func TestAveragePrecision(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := 1; n < 60; n++ {
		scores, labels := make([]float32, n), make([]float32, n)
		for i := range n {
			scores[i], labels[i] = float32(rng.IntN(8)), float32(rng.IntN(2))
		}
		labels[n/2] = 1
		if got, ok := AveragePrecision(scores, labels); !ok || math.Abs(got-slowAP(scores, labels)) > 1e-12 {
			t.Fatalf("%v %v: %v, want %v", scores, labels, got, slowAP(scores, labels))
		}
	}
	if _, ok := AveragePrecision([]float32{1, 2}, []float32{0, 0}); ok {
		t.Error("a precision without positive examples")
	}
	if _, ok := AveragePrecision([]float32{1, float32(math.NaN())}, []float32{1, 0}); ok {
		t.Error("a precision of a score that is no number")
	}
}

// An example of weight w is as good as w examples; one of weight 0 is none.
func TestWeights(t *testing.T) {
	of := []struct {
		name            string
		plain, weighted func(scores, labels, weights []float32) (float64, bool)
	}{
		{"AUC", func(s, l, _ []float32) (float64, bool) { return AUC(s, l) }, WeightedAUC},
		{"AveragePrecision", func(s, l, _ []float32) (float64, bool) { return AveragePrecision(s, l) }, WeightedAveragePrecision},
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for n := 1; n < 40; n++ {
		scores, labels, weights := make([]float32, n), make([]float32, n), make([]float32, n)
		var s, l []float32
		for i := range n {
			scores[i], labels[i], weights[i] = float32(rng.IntN(8)), float32(rng.IntN(2)), float32(rng.IntN(4))
			for range int(weights[i]) {
				s, l = append(s, scores[i]), append(l, labels[i])
			}
		}
		for _, f := range of {
			want, wantOK := f.plain(s, l, nil)
			if got, ok := f.weighted(scores, labels, weights); ok != wantOK || math.Abs(got-want) > 1e-12 {
				t.Errorf("%s of %v %v times %v: %v %v, want %v %v", f.name, scores, labels, weights, got, ok, want, wantOK)
			}
		}
	}
	auc, _ := WeightedAUC([]float32{.2, .6, .8, .4, .9}, []float32{1, 0, 0, 1, 1}, []float32{.13, .2, .5, .8, .75})
	if math.Abs(auc-.75/1.68) > 1e-7 { // the last alone is above the negative ones
		t.Error("fractions of weights:", auc)
	}
	for _, f := range of {
		err := func() (err error) {
			defer fault.Catch(&err)
			f.weighted([]float32{1, 2}, []float32{1, 0}, []float32{1})
			return nil
		}()
		if err == nil || !strings.Contains(err.Error(), "metrics: Weighted"+f.name+": 2 predictions and 1 weights") {
			t.Errorf("weights that are too few: %v", err)
		}
	}
}

func TestGzip(t *testing.T) {
	content := bytes.Repeat([]byte("some text that repeats, "), 1000)
	got, err := GzipBitsPerByte(content)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, 9)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(z, bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if want := 8 * float64(packed.Len()) / float64(len(content)); got != want {
		t.Errorf("%v bits per byte, want %v", got, want)
	}
}
