package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/checkpoint/safetensors"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// resumed resumes on two ranks, which must agree, and returns what they say.
func resumed(t *testing.T, fs fileSystem, root string) (step int, warnings []string, err error) {
	t.Helper()
	s := settings()[2]
	texts := make([]string, 2)
	onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		store, failed := Open(ctx, world, root, Options{fs: fs, Warn: func(m string) { warnings = append(warnings, m) }})
		if failed != nil {
			return failed
		}
		value := 0
		all := full(m, s, tensor.Float32, true)
		state := stateOf(all)
		state.AddValue("step", &value)
		at, ok, failed := store.Resume(ctx, state)
		texts[world.Rank()] = fmt.Sprint(at, ok, failed)
		if world.Rank() == 0 {
			step, err = at, failed
		}
		if !ok {
			return nil
		}
		return same(all)
	})
	if texts[0] != texts[1] {
		t.Errorf("rank 0 says %q, rank 1 %q", texts[0], texts[1])
	}
	return step, warnings, err
}

// Resume passes over checkpoints that are damaged, says so, and loads the newest that is
// whole; what is no damage it reports.
func TestResumePassesOverDamage(t *testing.T) {
	base := newMemFS()
	for step := 1; step <= 3; step++ {
		save(t, base, "root", settings()[2], step, tensor.Float32, Options{})
	}
	damages := map[string]func(fs *memFS, dir string) error{
		"a bit of a tensor": func(fs *memFS, dir string) error {
			n, err := fs.find("damage", dir+"/rank-00001.safetensors")
			if err == nil {
				n.data[len(n.data)-1] ^= 1
			}
			return err
		},
		"a file cut off": func(fs *memFS, dir string) error {
			n, err := fs.find("damage", dir+"/rank-00001.safetensors")
			if err == nil {
				n.data = n.data[:len(n.data)-1]
			}
			return err
		},
		"a file removed": func(fs *memFS, dir string) error { return fs.Remove(dir + "/rank-00001.safetensors") },
		"a bit of the index": func(fs *memFS, dir string) error {
			n, err := fs.find("damage", dir+"/"+indexName)
			if err == nil {
				n.data[len(n.data)/2] ^= 1
			}
			return err
		},
		"an empty index": func(fs *memFS, dir string) error {
			n, err := fs.find("damage", dir+"/"+indexName)
			if err == nil {
				n.data = nil
			}
			return err
		},
	}
	for what, damage := range damages {
		fs := base.crash(nil)
		for newest := 3; newest >= 0; newest-- {
			step, warnings, err := resumed(t, fs, "root")
			switch {
			case newest == 0:
				if err == nil || !strings.Contains(err.Error(), "none of the 3 checkpoints in root is whole; of the newest:") ||
					!strings.Contains(err.Error(), "root/step-000003/") {
					t.Errorf("%s in all: %v", what, err)
				}
				continue
			case err != nil || step != newest || len(warnings) != 3-newest:
				t.Errorf("%s: step %d, want %d; %v; %q", what, step, newest, err, warnings)
			}
			for i, w := range warnings {
				if dir := fmt.Sprintf("root/step-%06d", 3-i); !strings.HasPrefix(w,
					"checkpoint: Resume: "+dir+" is damaged, so step "+fmt.Sprint(newest)+" of root/step-") || !strings.Contains(w, ": "+"rank ") &&
					!strings.Contains(w, indexName) {
					t.Errorf("%s: %q", what, w)
				}
			}
			if err := damage(fs, fmt.Sprintf("root/step-%06d", newest)); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Other shapes are a mistake of the program, and a newer format is no damage.
	fs := base.crash(nil)
	save(t, fs, "root", settings()[1], 5, tensor.Float32, Options{})
	n, err := fs.find("edit", "root/step-000005/"+indexName)
	if err != nil {
		t.Fatal(err)
	}
	body := strings.Replace(string(n.data[:len(n.data)-sealBytes]), `"version": 1`, `"version": 9`, 1)
	n.data = fmt.Appendf([]byte(body), "%s%s%s", sealBegin, sum([]byte(body)), sealEnd)
	if _, warnings, err := resumed(t, fs, "root"); err == nil || !strings.Contains(err.Error(), "use a newer one") || warnings != nil {
		t.Errorf("%v, %q", err, warnings)
	}
}

// A damaged checkpoint takes no place among those that are kept, and its step can be
// saved again.
func TestDamagedAreNotKept(t *testing.T) {
	fs := newMemFS()
	steps(t, fs, 2, Options{Keep: 2}, 1, 3)
	n, err := fs.find("damage", "root/step-000003/rank-00000.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	n.data = n.data[1:]
	onRanks(t, 1, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		store, err := Open(ctx, world, "root", Options{fs: fs, Keep: 2, Warn: func(string) {}})
		if err != nil {
			return err
		}
		state, value := new(State), 0
		state.AddValue("step", &value)
		for _, name := range []string{"shard", "whole"} {
			state.AddTensor(name, dtensor.Zeros(m, tensor.Float32, []int{6, 5}, layout.Replicate()))
		}
		if step, ok, err := store.Resume(ctx, state); err != nil || step != 1 || !ok {
			return fmt.Errorf("step %d, %v, %w", step, ok, err)
		}
		for i, want := range []string{"[lock step-000001 step-000002 step-000003]", "[lock step-000002 step-000003.1]"} {
			if err := errors.Join(store.Save(ctx, 2+i, state), store.Wait()); err != nil {
				return err
			}
			if names, _ := fs.List("root"); fmt.Sprint(names) != want {
				return fmt.Errorf("%v are left, want %s", names, want)
			}
		}
		return nil
	})
}

// What is named like a checkpoint and is none does not hinder List, Resume and Save.
func TestStrayNames(t *testing.T) {
	root := t.TempDir()
	save(t, osFS{}, root, settings()[2], 3, tensor.Float32, Options{})
	err := errors.Join(os.WriteFile(filepath.Join(root, "step-000007"), []byte("mine"), 0o666),
		os.Mkdir(filepath.Join(root, "step-000008"), 0o777),
		os.Symlink("nowhere", filepath.Join(root, "step-000009")), os.MkdirAll(filepath.Join(root, "step-000011", indexName), 0o777))
	if err != nil {
		t.Fatal(err)
	}
	step, warnings, err := resumed(t, osFS{}, root)
	if err != nil || step != 3 || len(warnings) != 1 || !strings.Contains(warnings[0], "step-000011/index.json: it is no file") {
		t.Errorf("step %d, %v, %q", step, err, warnings)
	}
	if err := os.RemoveAll(filepath.Join(root, "step-000011")); err != nil {
		t.Fatal(err)
	}
	if all, err := List(root); err != nil || len(all) != 1 || all[0].Step != 3 {
		t.Errorf("%v, %v", all, err)
	}
	save(t, osFS{}, root, settings()[2], 7, tensor.Float32, Options{Keep: 1})
	if step, _, err := resumed(t, osFS{}, root); err != nil || step != 7 {
		t.Errorf("step %d, %v", step, err)
	}
	if b, err := os.ReadFile(filepath.Join(root, "step-000007")); string(b) != "mine" {
		t.Errorf("%q, %v", b, err)
	}
}

// A file that is far too large is refused by its name, with the limit, and no memory is
// taken for it.
func TestFilesThatAreTooLarge(t *testing.T) {
	const size = 40 << 30 // sparse
	for _, c := range []struct{ file, path, says string }{
		{"index.json", "", "it has 42949672960 bytes, and may have 1073741824 at most"},
		{safetensors.IndexName, "", "it has 42949672960 bytes, and may have 100000000 at most"},
		{"model.safetensors", "", "the header has 9000000000 bytes by its own account; the format allows 100000000"},
		{"other.safetensors", "other.safetensors", "the header has 9000000000 bytes by its own account; the format allows 100000000"},
	} {
		dir := t.TempDir()
		name := filepath.Join(dir, c.file)
		err := os.WriteFile(name, []byte{0, 0x1a, 0x71, 0x18, 2, 0, 0, 0, '{'}, 0o666) // 9e9
		if err := errors.Join(err, os.Truncate(name, size)); err != nil {
			t.Fatal(err)
		}
		for r, err := range commtest.Ranks(t.Context(), 2, func(ctx context.Context, world *comm.Comm) error {
			return Load(ctx, world, filepath.Join(dir, c.path), new(State), LoadOptions{AllowUnexpected: true})
		}) {
			if err == nil || !strings.Contains(err.Error(), name+": ") || !strings.Contains(err.Error(), c.says) {
				t.Errorf("rank %d: %v", r, err)
			}
		}
		if c.file == indexName {
			if err := Verify(dir); err == nil || !strings.Contains(err.Error(), name+": "+c.says) {
				t.Errorf("Verify: %v", err)
			}
		}
	}
}
