package checkpoint

import (
	"context"
	"fmt"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
)

// resume loads what save wrote, under another setting.
func resume(t testing.TB, fs fileSystem, root string, s setting, want int, dt tensor.DType) {
	t.Helper()
	onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		store, err := Open(ctx, world, root, Options{fs: fs})
		if err != nil {
			return err
		}
		all := full(m, s, dt, true)
		state := stateOf(all)
		stored := -1
		state.AddValue("step", &stored)
		step, ok, err := store.Resume(ctx, state)
		if err != nil {
			return err
		}
		if !ok || step != want || stored != want {
			return fmt.Errorf("step %d, %v, value %d; want %d", step, ok, stored, want)
		}
		return same(all)
	})
}

func TestAnySettingToAnyOther(t *testing.T) {
	for i, from := range settings() {
		fs := newMemFS()
		save(t, fs, "root", from, i, tensor.Float32, Options{blockBytes: []int{7, 16, 64, 1 << 20}[i%4]})
		if err := verify(fs, "root/"+dirName(i, 0)); err != nil {
			t.Error(err)
		}
		for _, to := range settings() {
			t.Run(from.name+" to "+to.name, func(t *testing.T) { resume(t, fs, "root", to, i, tensor.Float32) })
		}
	}
}

func TestOtherElementType(t *testing.T) {
	types := []tensor.DType{tensor.Float32, tensor.Float64, tensor.Float16, tensor.BFloat16, tensor.Int32, tensor.Int64, tensor.Int8, tensor.Int16}
	list := settings()
	for i, from := range types {
		fs := newMemFS()
		save(t, fs, "root", list[6], 5, from, Options{blockBytes: 20})
		for j, to := range types {
			t.Run(fmt.Sprint(from, " to ", to), func(t *testing.T) { resume(t, fs, "root", list[(i+j)%len(list)], 5, to) })
		}
	}
}

// Each byte is written once, and replicas are divided evenly.
func TestReplicasAreWrittenOnceAndEvenly(t *testing.T) {
	for _, s := range settings() {
		fs := newMemFS()
		save(t, fs, "root", s, 0, tensor.Float32, Options{})
		text, err := readFile(fs, "root/step-000000/"+indexName)
		if err != nil {
			t.Fatal(err)
		}
		x, err := decodeIndex(text) // it checks that chunks cover each tensor once
		if err != nil {
			t.Fatal(err)
		}
		elems, bytes := 0, 0
		for _, shape := range shapes() {
			elems += whole(shape).numel()
		}
		for _, e := range x.Tensors {
			for _, c := range e.Chunks {
				bytes += 4 * c.box().numel()
			}
		}
		if bytes != 4*elems {
			t.Errorf("%s: %d bytes of elements, want %d", s.name, bytes, 4*elems)
		}
	}
	onSetting(t, setting{ranks: 4, mesh: []int{4}}, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		var state State
		for i := range 16 {
			state.AddTensor(fmt.Sprint(i), dtensor.Zeros(m, tensor.Float32, []int{8, 8}, settings()[1].placed(nil)...))
		}
		wrote := make([]int, 4)
		for _, p := range assign(state.tensors) {
			wrote[p.writer] += p.box.numel()
		}
		if wrote[0] != 256 || wrote[1] != 256 || wrote[2] != 256 || wrote[3] != 256 {
			return fmt.Errorf("the ranks write %v elements of 16 replicated tensors, want 256 each", wrote)
		}
		return nil
	})
}

// A rank reads the bytes of its shards and no others, once.
func TestEachByteIsReadOnce(t *testing.T) {
	list := settings()
	for _, c := range []struct {
		from, to int
		times    int // how often each byte is needed
	}{{2, 2, 1}, {5, 2, 1}, {0, 5, 1}, {0, 1, 2}, {8, 5, 1}, {5, 7, 2}} {
		fs := newMemFS()
		save(t, fs, "root", list[c.from], 0, tensor.Float32, Options{blockBytes: 4})
		text, err := readFile(fs, "root/step-000000/"+indexName)
		if err != nil {
			t.Fatal(err)
		}
		fs.reads = 0
		onSetting(t, list[c.to], func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
			all := full(m, list[c.to], tensor.Float32, true)
			for name := range shapes() {
				if name != "matrix" && name != "cube" {
					delete(all, name)
				}
			}
			_, err := load(ctx, world, fs, "root/step-000000", stateOf(all), LoadOptions{AllowUnexpected: true})
			return err
		})
		if want := len(text) + c.times*4*(7*5+3*4*5); fs.reads != want {
			t.Errorf("%s to %s: %d bytes read, want %d", list[c.from].name, list[c.to].name, fs.reads, want)
		}
	}
}
