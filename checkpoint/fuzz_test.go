package checkpoint

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/checkpoint/safetensors"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// smallCheckpoint returns the index, without its seal, and the file of a checkpoint.
func smallCheckpoint(t testing.TB) (body, data []byte) {
	t.Helper()
	fs := newMemFS()
	save(t, fs, "root", settings()[0], 1, tensor.Int16, Options{blockBytes: 32})
	text, err := readFile(fs, smallDir+"/"+indexName, false, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	data, err = readFile(fs, smallDir+"/rank-00000.safetensors", false, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return text[:len(text)-sealBytes], data
}

const smallDir = "root/step-000001"

// smallFS has a checkpoint with that index, sealed, and that file.
func smallFS(t testing.TB, body, data []byte) *memFS {
	t.Helper()
	fs := newMemFS()
	if err := fs.Mkdir(smallDir); err != nil {
		t.Fatal(err)
	}
	put(t, fs, smallDir+"/rank-00000.safetensors", data)
	put(t, fs, smallDir+"/"+indexName, fmt.Appendf(body[:len(body):len(body)], "%s%s%s", sealBegin, sum(body), sealEnd))
	return fs
}

// unminimized keeps the fuzzer from what it does by default with each input that is new
// to it: trying for a minute to make it smaller, which leaves ten inputs a minute.
func unminimized(f *testing.F) {
	if err := flag.Set("test.fuzzminimizetime", "1x"); err != nil {
		f.Fatal(err)
	}
}

// FuzzLoad damages the index, sealed again, and the file of a checkpoint: each of its
// tensors is read, whole and in two halves with the same bytes, or the file to blame is
// named. It runs on one goroutine, so that an input always covers the same code.
// TestDamagedLoad has the ranks.
func FuzzLoad(f *testing.F) {
	unminimized(f)
	body, data := smallCheckpoint(f)
	f.Add(body, data)
	f.Add(body, data[:200])
	f.Add([]byte(strings.Replace(string(body), `"block_bytes": 32`, `"block_bytes": 1`, 1)), data)
	f.Add([]byte(strings.Replace(string(body), `"at":`, `"at":1`, 2)), data)
	var one *comm.Comm
	commtest.Run(f, 1, func(ctx context.Context, world *comm.Comm) error { one = world; return nil })
	f.Fuzz(func(t *testing.T, body, data []byte) {
		fs := smallFS(t, body, data)
		named := func(what string, err error) {
			if err != nil && !strings.Contains(err.Error(), smallDir+"/") {
				t.Errorf("%s names no file: %v", what, err)
			}
		}
		whole := verify(fs, smallDir)
		named("Verify", whole)
		text, err := readIndex(fs, smallDir)
		if err != nil {
			t.Fatal(err)
		}
		x, err := decodeIndex(text)
		if err != nil {
			if whole == nil {
				t.Errorf("Verify passes, but %v", err)
			}
			return
		}
		for i := range x.Tensors {
			e := &x.Tensors[i]
			read := func(boxes ...box) ([]byte, error) {
				l := &loader{reader: newReader(fs, smallDir, false, x), host: one, load: []int{0}}
				defer l.close()
				var all []byte
				var targets []target
				for _, b := range boxes {
					to := target{b, make([]byte, b.numel()*e.dtype().Size())}
					targets = append(targets, to)
				}
				if err := l.fill(t.Context(), e, [][]box{boxes}, targets); err != nil {
					t.Fatal(err)
				}
				for _, to := range targets {
					all = append(all, to.data...)
				}
				return all, l.err
			}
			b := box{make([]int, len(e.Shape)), e.Shape}
			if b.numel()*e.dtype().Size() > len(data) || b.numel() == 0 { // then the file is too short
				continue
			}
			got, err := read(b)
			named("the loader", err)
			if err != nil && whole == nil {
				t.Errorf("Verify passes, but %v", err)
			}
			if err != nil || len(e.Shape) == 0 || e.Shape[0] < 2 {
				continue
			}
			top, rest := box{b.offset, slices.Clone(b.size)}, box{slices.Clone(b.offset), slices.Clone(b.size)}
			top.size[0], rest.offset[0], rest.size[0] = 1, 1, b.size[0]-1
			if halves, err := read(top, rest); err != nil || !bytes.Equal(halves, got) {
				t.Errorf("tensor %q: %v whole, in halves %v, %v", e.Name, got, halves, err)
			}
		}
	})
}

// TestDamagedLoad damages checkpoints at random, as FuzzLoad does: they load on two ranks
// or both name the file to blame.
func TestDamagedLoad(t *testing.T) {
	body, data := smallCheckpoint(t)
	rng := rand.New(rand.NewPCG(3, 4))
	loaded, failed := 0, 0
	for i := range 400 {
		body, data := slices.Clone(body), slices.Clone(data)
		switch damaged := [][]byte{body, body, data}[i%3]; i % 4 {
		case 0:
			damaged[rng.IntN(len(damaged))] ^= 1 << rng.IntN(8)
		case 1:
			copy(damaged[rng.IntN(len(damaged)):], damaged[rng.IntN(len(damaged)):][:1])
		case 2:
			if digit := rng.IntN(len(damaged)); damaged[digit] >= '0' && damaged[digit] <= '9' {
				damaged[digit] = '0' + byte(rng.IntN(10))
			}
		case 3:
			data = data[:rng.IntN(len(data))]
		}
		fs := smallFS(t, body, data)
		texts := make([]string, 2)
		onRanks(t, 2, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
			all := map[string]*dtensor.Tensor{
				"matrix": dtensor.Zeros(m, tensor.Int16, []int{7, 5}, layout.Shard(1)),
				"row":    dtensor.Zeros(m, tensor.Int16, []int{10}, layout.Replicate()),
			}
			_, err := load(ctx, world, fs, smallDir, stateOf(all), LoadOptions{AllowUnexpected: true, AllowMissing: true})
			texts[world.Rank()] = fmt.Sprint(err)
			if err != nil && !strings.Contains(err.Error(), smallDir) {
				t.Errorf("Load names no file: %v", err)
			}
			return nil
		})
		if texts[0] != texts[1] {
			t.Errorf("rank 0 says %q, rank 1 says %q", texts[0], texts[1])
		}
		if texts[0] == "<nil>" {
			loaded++
		} else {
			failed++
		}
	}
	if loaded < 20 || failed < 100 {
		t.Errorf("%d loaded, %d did not", loaded, failed)
	}
}

// FuzzModel damages a model of others, in two files with an index: what
// findIndex makes of it is an index that a reader can trust, or an error that
// names the file.
func FuzzModel(f *testing.F) {
	unminimized(f)
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
