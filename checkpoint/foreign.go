package checkpoint

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/checkpoint/safetensors"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// singleName is what a model in one file is called.
const singleName = "model.safetensors"

// A TensorInfo describes a tensor in a file.
type TensorInfo struct {
	Name  string
	DType tensor.DType
	Shape []int
}

// Tensors lists the tensors of a checkpoint or a model that Load can read; path names it as for
// Load. It reads the index or the headers alone, and needs no ranks.
func Tensors(path string) (_ []TensorInfo, err error) {
	defer fault.Locate(&err)
	_, _, text, err := findIndex(osFS{}, path)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: Tensors: %w", err)
	}
	x, err := decodeIndex(text)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: Tensors: %s: %w", path, err)
	}
	list := make([]TensorInfo, len(x.Tensors))
	for i := range x.Tensors {
		e := &x.Tensors[i]
		list[i] = TensorInfo{Name: e.Name, DType: e.dtype(), Shape: e.Shape}
	}
	return list, nil
}

// findIndex returns the index of what lies at path, as text, and the folder of
// its files. That of plain safetensors files is made from their headers; plain
// says that these are such.
func findIndex(fs fileSystem, path string) (dir string, plain bool, text []byte, err error) {
	if strings.HasSuffix(path, ".safetensors") {
		text, err := indexFiles(fs, filepath.Dir(path), []string{filepath.Base(path)}, nil)
		return filepath.Dir(path), true, text, err
	}
	names, err := fs.List(path)
	if err != nil {
		return "", false, nil, err
	}
	switch has := func(name string) bool { return slices.Contains(names, name) }; {
	case has(indexName):
		text, err := readIndex(fs, path)
		return path, false, text, err
	case has(safetensors.IndexName):
		name := filepath.Join(path, safetensors.IndexName)
		files, where, err := modelFiles(fs, name)
		if err != nil {
			return "", false, nil, err
		}
		text, err := indexFiles(fs, path, files, where)
		return path, true, text, err
	case has(singleName):
		text, err := indexFiles(fs, path, []string{singleName}, nil)
		return path, true, text, err
	}
	if all, err := list(fs, path); err == nil && len(all) > 0 {
		return "", false, nil, fmt.Errorf("%s holds %d checkpoints; give the folder of one, such as %s", path, len(all), all[len(all)-1].Dir)
	}
	return "", false, nil, fmt.Errorf("%s holds no complete checkpoint, no %s and no %s; give the folder of a checkpoint or of a model", path,
		singleName, safetensors.IndexName)
}

// indexFiles makes an index of safetensors files. where says which file has each
// tensor; nil: take all.
func indexFiles(fs fileSystem, dir string, files []string, where map[string]string) ([]byte, error) {
	x := &index{Format: formatName, Version: formatVersion, BlockBytes: 1 << 20, Files: []fileEntry{}, Tensors: []tensorEntry{},
		Unread: map[string]string{}}
	left := maps.Clone(where)
	for i, name := range files {
		h, err := readHeader(fs, filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		x.Files = append(x.Files, fileEntry{Name: name, Bytes: h.FileBytes})
		for _, t := range h.Tensors {
			if where != nil && where[t.Name] != name {
				continue
			}
			delete(left, t.Name)
			if t.Other != "" {
				x.Unread[t.Name] = t.Other
				continue
			}
			e := tensorEntry{Name: t.Name, DType: safetensors.Name(t.DType), Shape: t.Shape, Chunks: []chunkEntry{}}
			if t.Bytes > 0 {
				e.Chunks = []chunkEntry{{File: i, At: h.DataStart + t.Offset, Offset: make([]int, len(t.Shape)), Shape: t.Shape}}
			}
			x.Tensors = append(x.Tensors, e)
		}
	}
	if len(left) > 0 {
		name := slices.Min(slices.Collect(maps.Keys(left)))
		return nil, fmt.Errorf("%s: it has no tensor %q, which the index says is there", filepath.Join(dir, where[name]), name)
	}
	return x.encode()
}

// readHeader reads the header of a safetensors file. Its error names the file.
func readHeader(fs fileSystem, name string) (*safetensors.Header, error) {
	f, err := fs.Open(name, true)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil {
		return nil, err
	}
	h, err := safetensors.ReadHeader(f, n)
	if malformed := (*safetensors.FormatError)(nil); errors.As(err, &malformed) {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return h, err
}
