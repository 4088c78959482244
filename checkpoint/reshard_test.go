package checkpoint

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
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
	types := []tensor.DType{tensor.Float32, tensor.Float64, tensor.Float16, tensor.BFloat16, tensor.Int32, tensor.Int64, tensor.Int8,
		tensor.Int16}
	list := settings()
	for i, from := range types {
		fs := newMemFS()
		save(t, fs, "root", list[6], 5, from, Options{blockBytes: 20})
		for j, to := range types {
			t.Run(fmt.Sprint(from, " to ", to), func(t *testing.T) { resume(t, fs, "root", list[(i+j)%len(list)], 5, to) })
		}
	}
}

// A number that the type of the State's tensor cannot hold is an error on every rank, which names the tensor.
func TestOtherElementTypeLosesNothing(t *testing.T) {
	fs := newMemFS()
	onSetting(t, setting{ranks: 2, mesh: []int{2}}, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		for i, c := range []struct {
			from, to tensor.DType
			v        float64
			want     string // "": it loads
		}{
			{tensor.Float32, tensor.Int64, 1.5, `tensor "w": it has 1.5 there, of float32, and would have 1 here, of int64`},
			{tensor.Float32, tensor.Int8, 300, "it has 300 there"},
			{tensor.BFloat16, tensor.Bool, 2, "of bool"},
			{tensor.Float64, tensor.Int32, math.NaN(), "it has NaN there"},
			{tensor.Int64, tensor.Int32, 1 << 40, "it has 1.099511627776e+12 there, of int64"},
			{tensor.Uint8, tensor.Int8, 200, "it has 200 there, of uint8, and would have -56 here"},
			{tensor.Float32, tensor.Int64, -7, ""},
			{tensor.Int64, tensor.Bool, 1, ""},
			{tensor.Float32, tensor.BFloat16, 1.1, ""},
		} {
			root := fmt.Sprint("root", i)
			store, err := Open(ctx, world, root, Options{fs: fs})
			if err != nil {
				return err
			}
			var saved, loaded State
			saved.AddTensor("w", dtensor.Full(m, c.from, c.v, []int{5, 3}, layout.Shard(0)))
			loaded.AddTensor("w", dtensor.Zeros(m, c.to, []int{5, 3}, layout.Shard(1)))
			if err := store.Save(ctx, 0, &saved); err != nil {
				return err
			}
			if err := store.Wait(); err != nil {
				return err
			}
			_, err = load(ctx, world, fs, root+"/step-000000", &loaded, LoadOptions{})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				return fmt.Errorf("%v as %v: %v, want %q", c.from, c.to, err, c.want)
			}
		}
		return nil
	})
}

// Each byte is written once, and replicas are divided evenly.
func TestReplicasAreWrittenOnceAndEvenly(t *testing.T) {
	for _, s := range settings() {
		fs := newMemFS()
		save(t, fs, "root", s, 0, tensor.Float32, Options{})
		text, err := readFile(fs, "root/step-000000/"+indexName, false, 1<<20)
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
		for _, p := range assign(state.tensors, 0) {
			wrote[p.writer] += p.box.numel()
		}
		if wrote[0] != 256 || wrote[1] != 256 || wrote[2] != 256 || wrote[3] != 256 {
			return fmt.Errorf("the ranks write %v elements of 16 replicated tensors, want 256 each", wrote)
		}
		return nil
	})
}

// The ranks of a host read the bytes that they need and no others, each once.
func TestEachByteIsReadOnceAHost(t *testing.T) {
	list := settings()
	for _, c := range []struct {
		from, to int
		hosts    int
		times    int // on how many hosts each byte is needed
	}{{2, 2, 1, 1}, {5, 2, 1, 1}, {0, 5, 1, 1}, {0, 1, 1, 1}, {0, 1, 2, 2}, {8, 5, 1, 1}, {5, 7, 1, 1}, {5, 7, 2, 1}, {5, 9, 2, 2}, {2, 4, 1,
		1}, {3, 6, 1, 1}, {1, 10, 3, 1}, {4, 4, 3, 1}} {
		for _, blockBytes := range []int{4, 48, 1 << 20} {
			fs := newMemFS()
			save(t, fs, "root", list[c.from], 0, tensor.Float32, Options{blockBytes: blockBytes})
			text, err := readFile(fs, "root/step-000000/"+indexName, false, 1<<20)
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
				o := LoadOptions{AllowUnexpected: true, host: fmt.Sprint("host", world.Rank()%c.hosts)}
				if _, err := load(ctx, world, fs, "root/step-000000", stateOf(all), o); err != nil {
					return err
				}
				for name, x := range all {
					if err := same(map[string]*dtensor.Tensor{name: x}); err != nil {
						return err
					}
				}
				return nil
			})
			// Several hosts may need parts of one block each.
			want := len(text) + c.times*4*(7*5+3*4*5)
			if fs.reads != want && (c.hosts == 1 || blockBytes == 4 || fs.reads < want) {
				t.Errorf("%s to %s on %d hosts, blocks of %d: %d bytes read, want %d", list[c.from].name, list[c.to].name, c.hosts, blockBytes,
					fs.reads, want)
			}
		}
	}
}
