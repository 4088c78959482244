package checkpoint

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/checkpoint/safetensors"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// put writes a file.
func put(t testing.TB, fs *memFS, name string, b []byte) {
	t.Helper()
	if err := fs.Mkdir("model"); err != nil {
		t.Fatal(err)
	}
	if err := publish(fs, name, func(f file) error { return writeAll(f, b) }); err != nil {
		t.Fatal(err)
	}
}

// plain returns a safetensors file of float32 tensors with their values.
func plain(t testing.TB, names ...string) []byte {
	t.Helper()
	var list []safetensors.Tensor
	for _, name := range names {
		list = append(list, safetensors.Tensor{Name: "hf." + name, DType: tensor.Float32, Shape: shapes()[name]})
	}
	h, err := safetensors.NewHeader(map[string]string{"format": "pt"}, list)
	if err != nil {
		t.Fatal(err)
	}
	b := h.Encode()
	for _, x := range h.Tensors {
		for i := range x.Bytes / 4 {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(value(strings.TrimPrefix(x.Name, "hf."), i))))
		}
	}
	return b
}

func imports(t *testing.T, fs fileSystem, path string) {
	t.Helper()
	for i, s := range settings() {
		dt := []tensor.DType{tensor.Float32, tensor.BFloat16}[i%2]
		onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
			all := full(m, s, dt, true)
			o := LoadOptions{Rename: func(name string) string { return "hf." + name }}
			if _, err := load(ctx, world, fs, path, stateOf(all), o); err != nil {
				return err
			}
			return same(all)
		})
	}
}

func TestImport(t *testing.T) {
	fs := newMemFS()
	everything := []string{"matrix", "one", "scalar", "empty", "cube", "flat", "row"}
	put(t, fs, "model/other.safetensors", plain(t, everything...))
	imports(t, fs, "model/other.safetensors")
	put(t, fs, "model/model.safetensors", plain(t, everything...))
	imports(t, fs, "model")

	// In several files, one of which has a tensor that the index says is elsewhere.
	put(t, fs, "model/a.safetensors", plain(t, "matrix", "one", "empty", "row"))
	put(t, fs, "model/b.safetensors", plain(t, "scalar", "cube", "flat", "row"))
	const where = `{"weight_map": {"hf.matrix": "a.safetensors", "hf.one": "a.safetensors", "hf.empty": "a.safetensors",
		"hf.row": "b.safetensors",
		"hf.scalar": "b.safetensors", "hf.cube": "b.safetensors", "hf.flat": "b.safetensors"%s}}`
	put(t, fs, "model/model.safetensors.index.json", fmt.Appendf(nil, where, ""))
	imports(t, fs, "model")

	for _, c := range []struct{ more, says string }{
		{`, "hf.more": "b.safetensors"`, `model/b.safetensors: it has no tensor "hf.more"`},
		{`, "hf.more": "c.safetensors"`, "model/c.safetensors"},
		{`, "hf.more": "../c.safetensors"`, "plain name"},
	} {
		put(t, fs, "model/model.safetensors.index.json", fmt.Appendf(nil, where, c.more))
		if _, _, _, err := findIndex(fs, "model"); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("got %v, want %q", err, c.says)
		}
	}
	put(t, fs, "model/other.safetensors", plain(t, everything...)[:900])
	sameError(t, 3, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		_, err := load(ctx, world, fs, "model/other.safetensors", new(State), LoadOptions{})
		return fmt.Errorf("checkpoint: %w", err)
	}, "rank 0: model/other.safetensors: safetensors: byte 900", "cut off")
}

func TestBoolsOfOthers(t *testing.T) {
	fs := newMemFS()
	h, err := safetensors.NewHeader(nil, []safetensors.Tensor{{Name: "b", DType: tensor.Bool, Shape: []int{4}}})
	if err != nil {
		t.Fatal(err)
	}
	put(t, fs, "model/b.safetensors", append(h.Encode(), 0, 1, 2, 255))
	onSetting(t, settings()[0], func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		x := dtensor.Zeros(m, tensor.Bool, []int{4}, settings()[0].placed(nil)...)
		if _, err := load(ctx, world, fs, "model/b.safetensors", stateOf(map[string]*dtensor.Tensor{"b": x}), LoadOptions{}); err != nil {
			return err
		}
		if b, _ := hostBytes(x.Local()); fmt.Sprint(b) != "[0 1 1 1]" {
			return fmt.Errorf("the bytes are %v", b)
		}
		return nil
	})
}

// Tensors of types that are not ours do not keep the others from being read.
func TestTypesOfOthers(t *testing.T) {
	fs := newMemFS()
	h := &safetensors.Header{Tensors: []safetensors.Tensor{{Name: "fp8", Other: "F8_E4M3", Shape: []int{3}, Bytes: 3},
		{Name: "fp4", Other: "F4", Shape: []int{2}, Offset: 3, Bytes: 1}, {Name: "u", DType: tensor.Uint8, Shape: []int{2}, Offset: 4, Bytes: 2}}}
	put(t, fs, "model/model.safetensors", append(h.Encode(), 1, 2, 3, 4, 5, 6))
	try := func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh, name string, o LoadOptions) error {
		var state State
		x := dtensor.Zeros(m, tensor.Float32, []int{2}, layout.Replicate())
		state.AddTensor(name, x)
		if _, err := load(ctx, world, fs, "model", &state, o); err != nil {
			return err
		}
		if got := tensor.ToSlice[float32](x.Local()); fmt.Sprint(got) != "[5 6]" {
			return fmt.Errorf("%v instead of 5 and 6", got)
		}
		return nil
	}
	onRanks(t, 2, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		if err := try(ctx, world, m, "u", LoadOptions{Ignore: []string{"fp*"}}); err != nil {
			return err
		}
		err := try(ctx, world, m, "u", LoadOptions{})
		if err == nil || !strings.Contains(err.Error(), `"fp4", "fp8" are unexpected`) {
			return fmt.Errorf("without options: %w", err)
		}
		return nil
	})
	sameError(t, 2, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		if err := try(ctx, world, m, "fp8", LoadOptions{AllowUnexpected: true, AllowMissing: true}); err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
		return nil
	}, "checkpoint: ", `"fp8" is of type F8_E4M3 there`, "convert it in the file, or leave it out of the State")
	if _, err := diffCheckpoints(fs, "model", "model"); err == nil || !strings.Contains(err.Error(), `"fp4" is of type F4`) {
		t.Errorf("Diff: %v", err)
	}
}

// Every setting exports the same bytes, in slabs of any size, and they import.
func TestExport(t *testing.T) {
	var want []byte
	for _, s := range settings() {
		for _, slab := range []int{1, 4, 1 << 20} {
			fs := newMemFS()
			onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
				var state State
				for name, x := range full(m, s, tensor.Float32, false) {
					state.AddTensor("hf."+name, x)
				}
				return export(ctx, world, fs, "model.safetensors", &state, ExportOptions{Metadata: map[string]string{"format": "pt"}, slab: slab})
			})
			got, err := readFile(fs.crash(nil), "model.safetensors", true, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = got
				imports(t, fs, "model.safetensors")
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s, slabs of %d: the file differs", s.name, slab)
			}
		}
	}
	if !bytes.Equal(want, plain(t, "matrix", "one", "scalar", "empty", "cube", "flat", "row")) {
		t.Error("the file is not what a plain writer makes")
	}
}

// Whatever fails in an export, all ranks hear of it and no file appears.
func TestExportFails(t *testing.T) {
	for op := 1; ; op++ {
		fs := newMemFS()
		put(t, fs, "model/x", nil)
		begin, hit := fs.ops, ""
		fs.fault = func(n int, what string) error {
			if n == begin+op {
				hit = what
				return errInjected
			}
			return nil
		}
		says := "injected"
		sameError(t, 3, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
			s := settings()[3]
			err := export(ctx, world, fs, "model/m.safetensors", stateOf(full(m, s, tensor.Float32, false)), ExportOptions{slab: 7})
			if err != nil {
				return fmt.Errorf("checkpoint: %w", err)
			}
			if hit == "" {
				return errors.New("checkpoint: not injected")
			}
			return nil
		}, says)
		if hit == "" {
			break
		}
		if names, _ := fs.List("model"); len(names) != 1 && !strings.HasPrefix(hit, "syncdir") {
			t.Errorf("operation %d, %s, leaves %v", op, hit, names)
		}
	}
	folder := filepath.Join(t.TempDir(), "none")
	sameError(t, 2, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		return Export(ctx, world, filepath.Join(folder, "m.safetensors"), new(State), ExportOptions{})
	}, "make the folder "+folder+" before")
	sameError(t, 2, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		_, err := OpenDigestLog(ctx, world, filepath.Join(folder, "digests"), false)
		return err
	}, "make the folder "+folder+" before")
}
