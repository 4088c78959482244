package dtype

import (
	"math"
	"testing"
)

func TestTypesHaveNamesAndSizes(t *testing.T) {
	seen := map[string]DType{Invalid.String(): Invalid}
	for d := Float32; d < count; d++ {
		if other, ok := seen[d.String()]; ok || d.Size() == 0 {
			t.Errorf("type %d is %q, as type %d is; size %d", d, d, other, d.Size())
		}
		seen[d.String()] = d
	}
}

// nearest finds by search the finite half that is closest to f, ties to even.
func nearest(f float32, widen func(uint16) float32, inf uint16) uint16 {
	best, dist := uint16(0), math.Inf(1)
	for h := uint16(0); h < inf; h++ {
		d := math.Abs(float64(widen(h)) - float64(f))
		if d < dist || d == dist && h&1 == 0 {
			best, dist = h, d
		}
	}
	return best
}

func TestHalvesRoundToNearestEven(t *testing.T) {
	f16 := func(h uint16) float32 { return F16(h).Float32() }
	for _, f := range []float32{0, 1, 1.0004883, 1.0014648, 0.1, 65504, 6e-8, 3e-8, 2.9802322e-08, 6.1e-5, 1e-4, 2048.5, 2049, 2051} {
		if got, want := uint16(ToF16(f)), nearest(f, f16, 0x7c00); got != want {
			t.Errorf("ToF16(%g) = %#x, want %#x", f, got, want)
		}
		if got := ToF16(-f); got&0x7fff != ToF16(f)&0x7fff || got>>15 != 1 {
			t.Errorf("ToF16(%g) = %#x", -f, got)
		}
	}
	bf16 := func(h uint16) float32 { return BF16(h).Float32() }
	for _, f := range []float32{0, 1, 1.00390625, 1.01171875, 0.1, 3e38, 1e-40} {
		if got, want := uint16(ToBF16(f)), nearest(f, bf16, 0x7f80); got != want {
			t.Errorf("ToBF16(%g) = %#x, want %#x", f, got, want)
		}
	}
}

func TestEveryHalfRoundTrips(t *testing.T) {
	for i := range 1 << 16 {
		if f := F16(i).Float32(); f == f && ToF16(f) != F16(i) {
			t.Fatalf("F16 %#x -> %g -> %#x", i, f, ToF16(f))
		}
		if f := BF16(i).Float32(); f == f && ToBF16(f) != BF16(i) {
			t.Fatalf("BF16 %#x -> %g -> %#x", i, f, ToBF16(f))
		}
	}
}

func TestHalfExtremes(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	if f := ToF16(nan).Float32(); f == f {
		t.Error("F16 NaN lost")
	}
	if f := ToBF16(nan).Float32(); f == f {
		t.Error("BF16 NaN lost")
	}
	if ToF16(inf).Float32() != inf || ToF16(65520).Float32() != inf || ToF16(65519).Float32() != 65504 {
		t.Error("F16 overflow")
	}
	if ToBF16(inf).Float32() != inf {
		t.Error("BF16 Inf")
	}
}
