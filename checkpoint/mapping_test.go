package checkpoint

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/gorun-spmd/gorun/checkpoint/safetensors"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// fusedMap maps a layer whose keys are twice as wide as the queries.
var fusedMap = []Mapping{
	{Name: "layer*.q.*", File: "h.*.qk.*", Transpose: true, Dim: -1, Start: 0, Fused: 12},
	{Name: "layer*.k.*", File: "h.*.qk.*", Transpose: true, Dim: -1, Start: 4, Fused: 12},
	{Name: "layer*.*.weight", File: "h.*.*.w"},
}

// fusedModel makes what fusedMap maps. Element [o, i] of the file's matrix, which is
// [5, 12], is 12·o + i.
func fusedModel(m *dtensor.Mesh, s setting, dt tensor.DType, zero bool) (*State, map[string]*dtensor.Tensor) {
	var state State
	all := map[string]*dtensor.Tensor{}
	add := func(name string, shape []int, at func(i, j int) int) {
		w := tensor.Zeros(m.Device(), tensor.Float64, shape...)
		cols := shape[len(shape)-1]
		for i, d := 0, tensor.Data[float64](w); i < len(d) && !zero; i++ {
			d[i] = float64(at(i/cols, i%cols))
		}
		all[name] = dtensor.Distribute(m, tensor.Cast(w, dt), s.placed(shape)...)
		state.AddTensor(name, all[name])
	}
	add("layer0.q.weight", []int{4, 5}, func(i, j int) int { return 12*j + i })
	add("layer0.k.weight", []int{8, 5}, func(i, j int) int { return 12*j + i + 4 })
	add("layer0.q.bias", []int{4}, func(_, j int) int { return j })
	add("layer0.k.bias", []int{8}, func(_, j int) int { return j + 4 })
	add("layer0.out.weight", []int{3, 4}, func(i, j int) int { return 4*i + j })
	return &state, all
}

// A model of which the file has parts fused, transposed and renamed is exported by every
// setting as the same bytes, and loads from them, in another type too.
func TestMapping(t *testing.T) {
	var want []byte
	for _, s := range settings() {
		fs := newMemFS()
		onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
			state, _ := fusedModel(m, s, tensor.Float32, false)
			return export(ctx, world, fs, "model.safetensors", state, ExportOptions{Map: fusedMap, slab: 7})
		})
		got, err := readFile(fs, "model.safetensors", true, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = got
			h, err := safetensors.ReadHeader(bytes.NewReader(got), len(got))
			if err != nil {
				t.Fatal(err)
			}
			for i, x := range h.Tensors {
				if says := []string{"h.0.out.w [3 4]", "h.0.qk.bias [12]", "h.0.qk.weight [5 12]"}[i]; fmt.Sprint(x.Name, " ", x.Shape) != says {
					t.Errorf("tensor %d is %s %v, want %s", i, x.Name, x.Shape, says)
				}
				for k := range x.Bytes / 4 {
					bits := binary.LittleEndian.Uint32(got[h.DataStart+x.Offset+4*k:])
					if v := math.Float32frombits(bits); v != float32(k) {
						t.Errorf("%s: element %d is %v", x.Name, k, v)
					}
				}
			}
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: the file differs", s.name)
		}
		for _, dt := range []tensor.DType{tensor.Float32, tensor.Float64} {
			onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
				state, got := fusedModel(m, s, dt, true)
				_, all := fusedModel(m, s, dt, false)
				if _, err := load(ctx, world, fs, "model.safetensors", state, LoadOptions{Map: fusedMap}); err != nil {
					return err
				}
				for name, x := range got {
					if a, b := tensor.ToSlice[float64](tensor.Cast(x.Local(), tensor.Float64)),
						tensor.ToSlice[float64](tensor.Cast(all[name].Local(), tensor.Float64)); fmt.Sprint(a) != fmt.Sprint(b) {
						return fmt.Errorf("%s is %v, want %v", name, a, b)
					}
				}
				return nil
			})
		}
	}
}

// The parts of a fused tensor are loaded together: each byte is read once on a host.
func TestMappingReadsOnce(t *testing.T) {
	fs, s := newMemFS(), settings()[4]
	onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		state, _ := fusedModel(m, s, tensor.Float32, false)
		return export(ctx, world, fs, "model.safetensors", state, ExportOptions{Map: fusedMap})
	})
	text, err := readFile(fs, "model.safetensors", true, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	fs.reads = 0
	onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		state, _ := fusedModel(m, s, tensor.Float32, true)
		_, err := load(ctx, world, fs, "model.safetensors", state, LoadOptions{Map: fusedMap})
		return err
	})
	if fs.reads != len(text) {
		t.Errorf("%d bytes read of a file of %d", fs.reads, len(text))
	}
}

// Two names of a State, tied weights, load from one tensor.
func TestMappingTied(t *testing.T) {
	fs := newMemFS()
	put(t, fs, "model/m.safetensors", plain(t, "matrix"))
	onRanks(t, 2, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		a := dtensor.Zeros(m, tensor.Float32, []int{7, 5}, layout.Shard(0))
		b := dtensor.Zeros(m, tensor.BFloat16, []int{5, 7}, layout.Shard(0))
		o := LoadOptions{Map: []Mapping{{Name: "a", File: "hf.matrix"}, {Name: "b", File: "hf.matrix", Transpose: true}}}
		if _, err := load(ctx, world, fs, "model/m.safetensors", stateOf(map[string]*dtensor.Tensor{"a": a, "b": b}), o); err != nil {
			return err
		}
		for _, x := range []*dtensor.Tensor{a, b.Cast(tensor.Float32).Transpose(0, 1)} {
			if err := same(map[string]*dtensor.Tensor{"matrix": x}); err != nil {
				return err
			}
		}
		return nil
	})
}

// What Ignore names may be in the file.
func TestIgnore(t *testing.T) {
	fs := newMemFS()
	put(t, fs, "model/m.safetensors", plain(t, "matrix", "one", "cube"))
	sameError(t, 2, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		a := dtensor.Zeros(m, tensor.Float32, []int{7, 5}, layout.Shard(0))
		state := stateOf(map[string]*dtensor.Tensor{"hf.matrix": a})
		if _, err := load(ctx, world, fs, "model/m.safetensors", state, LoadOptions{Ignore: []string{"hf.o*", "hf.cube"}}); err != nil {
			return err
		}
		_, err := load(ctx, world, fs, "model/m.safetensors", state, LoadOptions{Ignore: []string{"*", "hf.c*e"}})
		return fmt.Errorf("checkpoint: %w", err)
	}, `"hf.one" is unexpected`)
}

func TestMappingRefusals(t *testing.T) {
	for _, c := range []struct {
		maps []Mapping
		says string
	}{
		{[]Mapping{{Name: "layer0.out.weight", File: "h.*"}}, "no more * in File than in Name"},
		{[]Mapping{{Name: "layer0.out.weight", File: "w", Dim: 2, Fused: 9}}, "cannot be the part from 0 on of dimension 2"},
		{[]Mapping{{Name: "layer0.out.weight", File: "w", Start: 7, Fused: 9}}, "cannot be the part from 7 on of dimension 0 of 9"},
		{[]Mapping{{Name: "layer0.*.bias", File: "b"}}, `"layer0.k.bias" and "layer0.q.bias"`},
		{fusedMap[:1], `"h.0.qk.bias" has 4 of the 12 elements`},
		{[]Mapping{fusedMap[0], {Name: "layer*.k.*", File: "h.*.qk.*", Transpose: true, Dim: -1, Start: 3, Fused: 12}},
			"elements 3 to 4 of dimension 0 of"},
	} {
		sameError(t, 2, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
			state, _ := fusedModel(m, settings()[2], tensor.Float32, false)
			err := export(ctx, world, newMemFS(), "m.safetensors", state, ExportOptions{Map: c.maps})
			return fmt.Errorf("checkpoint: %w", err)
		}, c.says)
	}
}
