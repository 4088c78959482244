package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// sameError runs f, which must fail with the same words on every rank, all of
// says among them, and leave the communicator usable.
func sameError(t *testing.T, ranks int, f func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error, says ...string) {
	t.Helper()
	texts := make([]string, ranks)
	onRanks(t, ranks, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		if err := f(ctx, world, m); err != nil {
			texts[world.Rank()] = err.Error()
		}
		return comm.Barrier(ctx, world)
	})
	for r, text := range texts {
		if text != texts[0] {
			t.Errorf("rank %d says %q, rank 0 says %q", r, text, texts[0])
		}
	}
	for _, want := range says {
		if !strings.Contains(texts[0], want) || !strings.HasPrefix(texts[0], "checkpoint: ") {
			t.Errorf("the error is %q; it should have %q", texts[0], want)
		}
	}
}

func TestStatesThatDoNotFit(t *testing.T) {
	fs := newMemFS()
	save(t, fs, "root", settings()[5], 1, tensor.Float32, Options{})
	s := settings()[3]
	for _, c := range []struct {
		name   string
		change func(all map[string]*dtensor.Tensor, m *dtensor.Mesh, rank int)
		o      LoadOptions
		says   []string // none: it loads
	}{
		{"same", func(map[string]*dtensor.Tensor, *dtensor.Mesh, int) {}, LoadOptions{}, nil},
		{"missing and unexpected", func(all map[string]*dtensor.Tensor, m *dtensor.Mesh, rank int) {
			all["other"] = all["matrix"]
			delete(all, "matrix")
		}, LoadOptions{}, []string{"root/step-000001", `"other" is missing`, `"matrix" is unexpected`, "AllowUnexpected"}},
		{"unexpected allowed", func(all map[string]*dtensor.Tensor, m *dtensor.Mesh, rank int) { delete(all, "matrix") },
			LoadOptions{AllowUnexpected: true}, nil},
		{"missing allowed", func(all map[string]*dtensor.Tensor, m *dtensor.Mesh, rank int) {
			all["more"] = dtensor.Distribute(m, tensor.FromSlice(m.Device(), []float32{float32(value("more", 0))}, 1), layout.Replicate())
		}, LoadOptions{AllowMissing: true}, nil},
		{"shape", func(all map[string]*dtensor.Tensor, m *dtensor.Mesh, rank int) {
			all["matrix"] = dtensor.Zeros(m, tensor.Float32, []int{5, 7}, layout.Shard(0))
		}, LoadOptions{}, []string{`"matrix" is [7 5] there and [5 7] here`}},
		{"one rank differs", func(all map[string]*dtensor.Tensor, m *dtensor.Mesh, rank int) {
			if rank == 2 {
				delete(all, "cube")
			}
		}, LoadOptions{}, []string{"rank 2", `"cube" is unexpected`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			sameError(t, 3, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
				all := full(m, s, tensor.Float32, true)
				c.change(all, m, world.Rank())
				state := stateOf(all)
				step := 0
				state.AddValue("step", &step)
				_, err := load(ctx, world, fs, "root/step-000001", state, c.o)
				if err != nil {
					return fmt.Errorf("checkpoint: %w", err)
				}
				if len(c.says) > 0 {
					return errors.New("checkpoint: it loaded")
				}
				if err := same(all); err != nil {
					t.Error(err)
				}
				return nil
			}, c.says...)
		})
	}
}

func TestMisuseOfState(t *testing.T) {
	for _, c := range []struct {
		says string
		add  func(s *State, m *dtensor.Mesh)
	}{
		{`"x" is nil`, func(s *State, m *dtensor.Mesh) { s.AddTensor("x", nil) }},
		{`"x" was added twice`, func(s *State, m *dtensor.Mesh) { n := 0; s.AddValue("x", &n); s.AddValue("x", &n) }},
		{`name is empty`, func(s *State, m *dtensor.Mesh) { n := 0; s.AddValue("", &n) }},
		{`value "x" is a int`, func(s *State, m *dtensor.Mesh) { s.AddValue("x", 3) }},
		{`value "x": encoding/json would leave out the field step of`, func(s *State, m *dtensor.Mesh) {
			s.AddValue("x", &struct{ step int }{3})
		}},
		{`"p" is float32 [2] P(sum)`, func(s *State, m *dtensor.Mesh) {
			s.AddTensor("p", dtensor.Zeros(m, tensor.Float32, []int{2}, layout.Partial(layout.Sum)))
		}},
		{`value "f"`, func(s *State, m *dtensor.Mesh) { f := func() {}; s.AddValue("f", &f) }},
		{`rank 1 has other names`, func(s *State, m *dtensor.Mesh) {
			s.AddTensor(fmt.Sprint(m.Comm().Rank()), dtensor.Zeros(m, tensor.Float32, []int{2}, layout.Replicate()))
		}},
	} {
		fs := newMemFS()
		sameError(t, 2, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
			store, err := Open(ctx, world, "root", Options{fs: fs})
			if err != nil {
				return err
			}
			var s State
			c.add(&s, m)
			if err := store.Save(ctx, 1, &s); err != nil {
				return err
			}
			if !strings.HasPrefix(c.says, "rank 1") {
				return errors.New("checkpoint: Save returned no error")
			}
			return store.Wait()
		}, "checkpoint: Save: ", c.says)
		if names, _ := fs.List("root"); len(names) != 1 || names[0] != lockName {
			t.Errorf("%s: a save that failed left %v", c.says, names)
		}
	}
	sameError(t, 2, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		_, err := Open(ctx, world, "root", Options{fs: newMemFS(), Keep: -1})
		return err
	}, "checkpoint: Open: ", "Keep is -1")
}

// Every byte of every file is changed in turn, and every file is cut at every
// length. Verify finds all of it; what loads is right, what does not says where.
func TestDamageIsFound(t *testing.T) {
	base := newMemFS()
	save(t, base, "root", settings()[2], 1, tensor.Int16, Options{blockBytes: 32})
	dir := "root/step-000001"
	names, _ := base.List(dir)
	if len(names) != 3 {
		t.Fatalf("the checkpoint has %v", names)
	}
	found, harmless := 0, 0
	try := func(fs *memFS, what, name string) {
		commtest.Run(t, 1, func(ctx context.Context, world *comm.Comm) error {
			m, err := settings()[0].open(world)
			if err != nil {
				return err
			}
			all := full(m, settings()[0], tensor.Int16, true)
			_, err = load(ctx, world, fs, dir, stateOf(all), LoadOptions{AllowUnexpected: true})
			switch {
			case err == nil:
				harmless++ // in the header of a file, which Load does not use
				err = same(all)
			case strings.Contains(err.Error(), name):
				found++
				err = nil
			}
			if err != nil {
				return fmt.Errorf("%s of %s: %w", what, name, err)
			}
			return nil
		})
		if err := verify(fs, dir); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s of %s: Verify says %v", what, name, err)
		}
	}
	for _, name := range names {
		node, err := base.find("damage", dir+"/"+name)
		if err != nil {
			t.Fatal(err)
		}
		fs := base.crash(nil)
		longer, _ := fs.find("damage", dir+"/"+name)
		longer.data = append(longer.data, ' ')
		try(fs, "a byte at the end", name)
		for i := range node.data {
			fs := base.crash(nil)
			node, _ := fs.find("damage", dir+"/"+name)
			node.data[i] ^= 1 << (i % 8)
			try(fs, fmt.Sprintf("byte %d", i), name)
			if i%7 == 0 {
				fs := base.crash(nil)
				node, _ := fs.find("damage", dir+"/"+name)
				node.data = node.data[:i]
				try(fs, fmt.Sprintf("length %d", i), name)
			}
		}
	}
	if found < 500 || harmless < 100 {
		t.Errorf("%d changes found, %d of no consequence", found, harmless)
	}
}

// A file that only one rank reads is damaged: every rank hears of it.
func TestDamageReachesAllRanks(t *testing.T) {
	fs := newMemFS()
	save(t, fs, "root", settings()[5], 1, tensor.Float32, Options{})
	name := "root/step-000001/rank-00002.safetensors"
	node, err := fs.find("damage", name)
	if err != nil {
		t.Fatal(err)
	}
	node.data[len(node.data)-1] ^= 1
	says := []string{"rank 2", name, `tensor "row"`, "damaged", "bytes "}
	for _, remove := range []bool{false, true} {
		if remove {
			if err := fs.Remove(name); err != nil {
				t.Fatal(err)
			}
			says = []string{"rank 2", name, "does not exist"}
		}
		sameError(t, 4, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
			store, err := Open(ctx, world, "root", Options{fs: fs})
			if err != nil {
				return err
			}
			all := full(m, settings()[5], tensor.Float32, true)
			state := stateOf(all)
			step := 0
			state.AddValue("step", &step)
			_, _, err = store.Resume(ctx, state)
			return err
		}, says...)
	}
}

func TestNoCheckpoint(t *testing.T) {
	fs := newMemFS()
	commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
		store, err := Open(ctx, world, "root", Options{fs: fs})
		if err != nil {
			return err
		}
		step, ok, err := store.Resume(ctx, new(State))
		if step != 0 || ok {
			return fmt.Errorf("step %d of nothing", step)
		}
		return errors.Join(err, store.Wait())
	})
	save(t, fs, "root", settings()[0], 3, tensor.Float32, Options{})
	if _, _, _, err := findIndex(fs, "root"); err == nil ||
		!strings.Contains(err.Error(), "give the folder of one, such as root/step-000003") {
		t.Errorf("the root as a checkpoint: %v", err)
	}
	if e, ok, err := Latest(t.TempDir() + "/none"); ok || err != nil {
		t.Errorf("%v %v", e, err)
	}
}

// TestErrorsOfPathsNameTheLine calls what needs no ranks with paths where there is no checkpoint.
func TestErrorsOfPathsNameTheLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		f    func() error
	}{
		{"List", func() error { _, err := List(file); return err }},
		{"Latest", func() error { _, _, err := Latest(file); return err }},
		{"Verify", func() error { return Verify(file) }},
		{"Tensors", func() error { _, err := Tensors(file); return err }},
	} {
		err := fmt.Sprint(c.f())
		if !strings.HasPrefix(err, "checkpoint: "+c.name+": ") || !strings.Contains(err, "(at checkpoint/error_test.go:") {
			t.Errorf("%s: %v; it should name the call and its line", c.name, err)
		}
	}
}

func TestOpenNeedsAFolder(t *testing.T) {
	sameError(t, 2, func(ctx context.Context, world *comm.Comm, _ *dtensor.Mesh) error {
		_, err := Open(ctx, world, "", Options{})
		return err
	}, "Open: ", "the folder has no name")
}

// Rank 0's folder counts, and all ranks have to save one step.
func TestRanksWithOtherPathsAndSteps(t *testing.T) {
	fs := newMemFS()
	sameError(t, 3, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		store, err := Open(ctx, world, fmt.Sprint("root", world.Rank()), Options{fs: fs})
		if err != nil {
			return err
		}
		state := stateOf(full(m, settings()[3], tensor.Float32, false))
		if err := errors.Join(store.Save(ctx, 3, state), store.Wait()); err != nil {
			return err
		}
		if step, ok, err := store.Resume(ctx, state); err != nil || !ok || step != 3 {
			return fmt.Errorf("resumed at step %d, %v: %w", step, ok, err)
		}
		if err := store.Save(ctx, 7+world.Rank()/2, state); err != nil {
			return err
		}
		return store.Wait()
	}, "Save: rank 0 has the step 7 and rank 2 the step 8; give the same on every rank")
	if _, err := fs.List("root1"); err == nil {
		t.Error("rank 1 has made a folder of its own")
	}
}
