package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/gorun-spmd/gorun/checkpoint/safetensors"
	"github.com/gorun-spmd/gorun/comm"
)

// ExportOptions set up Export. The zero value writes files of at most 5 GB
// without metadata.
type ExportOptions struct {
	// Metadata goes into the header of each file. Hugging Face's transformers
	// wants {"format": "pt"}.
	Metadata map[string]string
	// MaxFileBytes is how many bytes of tensors a file in a folder has at most; a
	// tensor that is larger gets a file of its own. 0: 5 GB, as Hugging Face does.
	MaxFileBytes int
	// Map says which tensors the file has under another name, transposed or as parts of a
	// larger one; the first Mapping whose Name fits holds.
	Map []Mapping

	slab int // elements sent at a time; 0: slabElems
}

// A volume is one file of a model and the tensors that go into it.
type volume struct {
	name   string
	header *safetensors.Header
}

// divide distributes the tensors, in the order of their names, over files of at
// most o.MaxFileBytes bytes, and names these as Hugging Face does.
func divide(tensors []fileTensor, o ExportOptions) ([]volume, error) {
	var files [][]safetensors.Tensor
	bytes := 0 // of the last file
	for _, t := range tensors {
		n, _ := safetensors.Bytes(t.dtype(), t.shape)
		if len(files) == 0 || bytes > 0 && n > o.MaxFileBytes-bytes {
			files, bytes = append(files, nil), 0
		}
		bytes += n
		last := &files[len(files)-1]
		*last = append(*last, safetensors.Tensor{Name: t.name, DType: t.dtype(), Shape: t.shape})
	}
	if len(files) == 0 {
		files = [][]safetensors.Tensor{nil}
	}
	volumes := make([]volume, len(files))
	for i, list := range files {
		h, err := safetensors.NewHeader(o.Metadata, list)
		if err != nil {
			return nil, err
		}
		volumes[i] = volume{singleName, h}
		if len(files) > 1 {
			volumes[i].name = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(files))
		}
	}
	return volumes, nil
}

// exportFolder writes a model into a folder: the files, then the index if there
// are several. What makes a folder a model appears last.
func exportFolder(ctx context.Context, c *comm.Comm, fs fileSystem, dir string, tensors []fileTensor, o ExportOptions) error {
	volumes, err := divide(tensors, o)
	if err == nil && c.Rank() == 0 {
		err = makeModel(fs, dir)
	}
	if err := agree(ctx, c, err); err != nil {
		return err
	}
	for _, v := range volumes {
		if err := exportFile(ctx, c, fs, filepath.Join(dir, v.name), v.header, tensors, o.slab); err != nil {
			return err
		}
	}
	if len(volumes) > 1 && c.Rank() == 0 {
		where, total := map[string]string{}, 0
		for _, v := range volumes {
			for _, t := range v.header.Tensors {
				where[t.Name] = v.name
				total += t.Bytes
			}
		}
		text := safetensors.EncodeIndex(where, total)
		err = publish(fs, filepath.Join(dir, safetensors.IndexName), func(f file) error { return writeAll(f, text) })
	}
	return agree(ctx, c, err)
}

// makeModel makes the folder of a model. One that has a model already is refused:
// a crash while it is replaced would leave parts of two.
func makeModel(fs fileSystem, dir string) error {
	if err := makeRoot(fs, dir); err != nil {
		return err
	}
	names, err := fs.List(dir)
	if err != nil {
		return err
	}
	for _, name := range []string{singleName, safetensors.IndexName} {
		if slices.Contains(names, name) {
			return fmt.Errorf("%s is there already; give another folder, or remove it first", filepath.Join(dir, name))
		}
	}
	return nil
}

// owners says who sends which box of a tensor, given the boxes of each rank: one
// holder of each, the lowest, in the order of ranks.
func owners(boxes [][]box) []piece {
	var list []piece
	seen := map[string]bool{}
	for r, held := range boxes {
		for _, b := range held {
			if key := fmt.Sprint(b.offset, b.size); !seen[key] {
				seen[key] = true
				list = append(list, piece{writer: r, box: b})
			}
		}
	}
	return list
}

// modelFiles reads which files a Hugging Face index names.
func modelFiles(fs fileSystem, name string) (files []string, where map[string]string, err error) {
	text, err := readFile(fs, name, true, safetensors.MaxHeaderBytes)
	if err != nil {
		return nil, nil, err
	}
	where, err = safetensors.ParseIndex(text)
	if malformed := (*safetensors.FormatError)(nil); errors.As(err, &malformed) {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return slices.Compact(slices.Sorted(maps.Values(where))), where, err
}
