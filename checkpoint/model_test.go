package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/checkpoint/safetensors"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
)

// A model in files of every size: what the index says is where the tensors are,
// and it imports.
func TestExportFolder(t *testing.T) {
	for _, most := range []int{1, 50, 160, 400, 0} {
		for _, s := range []setting{settings()[0], settings()[6], settings()[10]} {
			fs := newMemFS()
			put(t, fs, "model/config.json", []byte("{}"))
			onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
				var state State
				for name, x := range full(m, s, tensor.Float32, false) {
					state.AddTensor("hf."+name, x)
				}
				return export(ctx, world, fs, "model", &state, ExportOptions{MaxFileBytes: most, Metadata: map[string]string{"format": "pt"}})
			})
			fs = fs.crash(nil)
			imports(t, fs, "model")
			names, _ := fs.List("model")
			if most == 0 {
				if want := []string{"config.json", "model.safetensors"}; !slices.Equal(names, want) {
					t.Errorf("%s: the folder has %v, want %v", s.name, names, want)
				}
				continue
			}
			text, err := readFile(fs, "model/model.safetensors.index.json", true, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			var x struct {
				Metadata struct {
					TotalSize int `json:"total_size"`
				}
				WeightMap map[string]string `json:"weight_map"`
			}
			if err := json.Unmarshal(text, &x); err != nil {
				t.Fatal(err)
			}
			total := 0
			for name, file := range x.WeightMap {
				h, err := readHeader(fs, "model/"+file)
				if err != nil {
					t.Fatal(err)
				}
				at, ok := h.Find(name)
				if total += at.Bytes; !ok || h.Metadata["format"] != "pt" {
					t.Errorf("%s of %v is not in %s", name, h, file)
				}
				if data := h.FileBytes - h.DataStart; data > most && len(h.Tensors) > 1 &&
					slices.ContainsFunc(h.Tensors, func(t safetensors.Tensor) bool { return t.Bytes > 0 && t.Bytes < data }) {
					t.Errorf("%s has %d bytes of %d tensors, at most %d are asked for", file, data, len(h.Tensors), most)
				}
			}
			if want := fmt.Sprintf("model-00001-of-%05d.safetensors", len(names)-2); total != x.Metadata.TotalSize ||
				len(x.WeightMap) != len(shapes()) || names[1] != want {
				t.Errorf("%s, %d bytes a file: total_size %d, want %d; %d tensors; %v", s.name, most, x.Metadata.TotalSize, total, len(x.WeightMap),
					names)
			}
		}
	}
}

// Whatever fails, no folder is a model before it is complete, and one that is a
// model already is left alone.
func TestExportFolderFails(t *testing.T) {
	s := settings()[3]
	for op := 1; ; op++ {
		fs := newMemFS()
		hit := ""
		fs.fault = func(n int, what string) error {
			if n == op {
				hit = what
				return errInjected
			}
			return nil
		}
		run := func(says string) {
			sameError(t, 3, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
				err := export(ctx, world, fs, "model", stateOf(full(m, s, tensor.Float32, false)), ExportOptions{MaxFileBytes: 100})
				if err == nil {
					err = errors.New("done")
				}
				return fmt.Errorf("checkpoint: %w", err)
			}, says)
		}
		if run(""); hit == "" {
			fs.fault = nil
			run("is there already")
			break
		}
		if _, _, _, err := findIndex(fs.crash(nil), "model"); err == nil && !strings.HasPrefix(hit, "syncdir") {
			t.Errorf("operation %d, %s, leaves a model", op, hit)
		}
		fs.fault = nil
		if !strings.HasPrefix(hit, "syncdir") {
			run("done")
		}
	}
	sameError(t, 2, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		return fmt.Errorf("checkpoint: %w", export(ctx, world, newMemFS(), "model", new(State), ExportOptions{MaxFileBytes: -1}))
	}, "MaxFileBytes is -1")
}

// A checkpoint's files are files in its folder: no link leads Load, Verify or a
// save out of it, and a pipe makes none of them wait. A model's may be links.
func TestLinks(t *testing.T) {
	root := t.TempDir()
	s := settings()[2]
	save(t, osFS{}, root, s, 1, tensor.Float32, Options{})
	dir := filepath.Join(root, "step-000001")
	loads := func() error {
		errs := commtest.Ranks(t.Context(), 1, func(ctx context.Context, world *comm.Comm) error {
			m, err := settings()[0].open(world)
			if err != nil {
				return err
			}
			return Load(ctx, world, dir, stateOf(full(m, settings()[0], tensor.Float32, true)), LoadOptions{AllowUnexpected: true})
		})
		return errs[0]
	}
	if err := loads(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"rank-00001.safetensors", indexName} {
		path, elsewhere := filepath.Join(dir, name), filepath.Join(t.TempDir(), "elsewhere")
		if err := errors.Join(os.Rename(path, elsewhere), os.Symlink(elsewhere, path)); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{loads(), Verify(dir)} {
			if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "symbolic link") {
				t.Errorf("%s is a link: %v", name, err)
			}
		}
		if err := errors.Join(os.Remove(path), mkfifo(path)); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{loads(), Verify(dir)} {
			if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "it is no file") {
				t.Errorf("%s is a pipe: %v", name, err)
			}
		}
		if err := errors.Join(os.Remove(path), os.Rename(elsewhere, path)); err != nil {
			t.Fatal(err)
		}
	}
	// A file of a save that is a link to elsewhere is not written through.
	outside := filepath.Join(t.TempDir(), "outside")
	if err := errors.Join(os.WriteFile(outside, []byte("mine"), 0o666), os.Symlink(outside, filepath.Join(root, "link"))); err != nil {
		t.Fatal(err)
	}
	if f, err := (osFS{}).Create(filepath.Join(root, "link")); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a link was opened to write: %v %v", f, err)
	}
	if b, err := os.ReadFile(outside); string(b) != "mine" {
		t.Errorf("%q %v", b, err)
	}
	// Hugging Face's cache: a folder of links to blobs.
	model, blob := filepath.Join(t.TempDir(), "model"), filepath.Join(t.TempDir(), "blob")
	if err := errors.Join(os.Mkdir(model, 0o777),
		os.WriteFile(blob, plain(t, "matrix", "one", "scalar", "empty", "cube", "flat", "row"), 0o666),
		os.Symlink(blob, filepath.Join(model, "model.safetensors"))); err != nil {
		t.Fatal(err)
	}
	imports(t, osFS{}, model)
}
