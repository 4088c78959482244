package checkpoint

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/checkpoint/safetensors"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// FuzzLoad damages the index, sealed again, and the file of a checkpoint: it
// loads on two ranks or says which file is to blame, the same on both, and takes
// no memory for what is not there.
func FuzzLoad(f *testing.F) {
	fs := newMemFS()
	s := settings()[0]
	save(f, fs, "root", s, 1, tensor.Int16, Options{blockBytes: 32})
	const dir = "root/step-000001"
	text, err := readFile(fs, dir+"/"+indexName, false)
	if err != nil {
		f.Fatal(err)
	}
	data, err := readFile(fs, dir+"/rank-00000.safetensors", false)
	if err != nil {
		f.Fatal(err)
	}
	body := text[:len(text)-sealBytes]
	f.Add(body, data)
	f.Add(body, data[:200])
	f.Add([]byte(strings.Replace(string(body), `"block_bytes": 32`, `"block_bytes": 1`, 1)), data)
	f.Add([]byte(strings.Replace(string(body), `"at":`, `"at":1`, 2)), data)
	f.Fuzz(func(t *testing.T, body, data []byte) {
		fs := newMemFS()
		if err := fs.Mkdir(dir); err != nil {
			t.Fatal(err)
		}
		put(t, fs, dir+"/rank-00000.safetensors", data)
		put(t, fs, dir+"/"+indexName, fmt.Appendf(body[:len(body):len(body)], "%s%s%s", sealBegin, sum(body), sealEnd))
		if err := verify(fs, dir); err != nil && !strings.Contains(err.Error(), dir+"/") {
			t.Errorf("Verify names no file: %v", err)
		}
		texts := make([]string, 2)
		onRanks(t, 2, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
			all := map[string]*dtensor.Tensor{
				"matrix": dtensor.Zeros(m, tensor.Int16, []int{7, 5}, layout.Shard(1)),
				"row":    dtensor.Zeros(m, tensor.Int16, []int{10}, layout.Replicate()),
			}
			_, err := load(ctx, world, fs, dir, stateOf(all), LoadOptions{AllowUnexpected: true, AllowMissing: true})
			texts[world.Rank()] = fmt.Sprint(err)
			if err != nil && !strings.Contains(err.Error(), dir) {
				t.Errorf("Load names no file: %v", err)
			}
			return nil
		})
		if texts[0] != texts[1] {
			t.Errorf("rank 0 says %q, rank 1 says %q", texts[0], texts[1])
		}
	})
}

// FuzzModel damages a model of others, in two files with an index: what
// findIndex makes of it is an index that a reader can trust, or an error that
// names the file.
func FuzzModel(f *testing.F) {
	const where = `{"metadata": {"total_size": 1}, "weight_map": {"hf.matrix": "a.safetensors", "hf.one": "b.safetensors"}}`
	f.Add([]byte(where), plain(f, "matrix"), plain(f, "one"))
	f.Add([]byte(strings.Replace(where, "b.s", "../b.s", 1)), plain(f, "matrix"), plain(f, "one"))
	f.Add([]byte(where), binary.LittleEndian.AppendUint64(nil, 99_999_999), plain(f, "one")[:20])
	f.Fuzz(func(t *testing.T, text, a, b []byte) {
		fs := newMemFS()
		put(t, fs, "model/"+safetensors.IndexName, text)
		put(t, fs, "model/a.safetensors", a)
		put(t, fs, "model/b.safetensors", b)
		dir, plain, text, err := findIndex(fs, "model")
		if err != nil {
			if !strings.Contains(err.Error(), "model/") {
				t.Errorf("no file is named: %v", err)
			}
			return
		}
		x, err := decodeIndex(text)
		if err != nil || dir != "model" || !plain {
			t.Fatalf("%s: %v", dir, err)
		}
		r := newReader(fs, dir, plain, x)
		defer r.close()
		for i := range x.Tensors {
			for j := range x.Tensors[i].Chunks {
				c := &x.Tensors[i].Chunks[j]
				n := c.box().numel() * x.Tensors[i].dtype().Size()
				if n > len(a)+len(b) {
					t.Fatalf("%d bytes of %d", n, len(a)+len(b))
				}
				for k := 0; k*x.BlockBytes < n; k++ {
					if err := r.block(make([]byte, x.blockBytes(k, n)), &x.Tensors[i], c, k); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	})
}
