package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// TestDigestOfAnyLayout compares the digests of every setting with the sum of the hashes,
// element by element.
func TestDigestOfAnyLayout(t *testing.T) {
	for _, dt := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Int8} {
		want := map[string][]uint64{}
		for name, shape := range shapes() {
			n := numel(shape)
			x := tensor.Zeros(tensor.NewCPU(nil), tensor.Float64, n)
			for i := range n {
				tensor.Data[float64](x)[i] = value(name, i)
			}
			b, _ := hostBytes(tensor.Cast(x, dt))
			sums := make([]uint64, digestRanges(shape))
			for i := range n {
				bits := element(b[i*dt.Size():], dt)
				sums[i/RangeElems(shape)] += ints.Mix(uint64(i+1)*0x9e3779b97f4a7c15 ^ ints.Mix(bits+0x9e3779b97f4a7c15))
			}
			want[name] = sums
		}
		for _, s := range settings() {
			onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
				list, err := Digests(ctx, world, stateOf(full(m, s, dt, false)))
				if err != nil {
					return err
				}
				for _, d := range list {
					if !slices.Equal(d.Ranges, want[d.Name]) || d.DType != dt {
						return fmt.Errorf("%s: %v %v: digest %x, want %x", s.name, dt, d.Name, d.Ranges, want[d.Name])
					}
				}
				if len(list) != len(want) {
					return fmt.Errorf("%d digests, want %d", len(list), len(want))
				}
				return nil
			})
		}
	}
}

// TestReplicaThatDiffers flips one bit on one rank.
func TestReplicaThatDiffers(t *testing.T) {
	for _, s := range settings() {
		for bad := 1; bad < s.ranks && s.on == nil; bad++ {
			onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
				all := full(m, s, tensor.Float32, false)
				x := all["cube"]
				n := x.Local().Numel()
				if world.Rank() == bad && n > 0 {
					tensor.Edit(x.Local(), func(v []float32) { v[n/2] = math.Float32frombits(math.Float32bits(v[n/2]) ^ 1<<13) })
				}
				_, err := Digests(ctx, world, stateOf(all))
				copies := (&namedTensor{tensor: x}).copies()
				if copies == 1 {
					return err
				}
				differs, ok := errors.AsType[*ReplicaError](err)
				if !ok || differs.Name != "cube" || len(differs.Ranks) != copies || !slices.Contains(differs.Ranks, bad) {
					return fmt.Errorf("%s, rank %d: got %v", s.name, bad, err)
				}
				at := box{differs.Index, []int{1, 1, 1}}
				b, _ := local(x)
				for u := range runs(b, at) {
					if u.x != n/2 {
						return fmt.Errorf("%s, rank %d: element %v is not the one that was changed", s.name, bad, differs.Index)
					}
				}
				if copies > 2 && !strings.HasSuffix(strings.Split(err.Error(), ";")[0], fmt.Sprintf("on rank %d", bad)) {
					return fmt.Errorf("got %v", err)
				}
				return nil
			})
		}
	}
}

func TestDigestLog(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, s setting, steps []int, goOn bool, changed int) string {
		path := filepath.Join(dir, name)
		onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
			all := full(m, s, tensor.Float32, false)
			l, err := OpenDigestLog(ctx, world, path, goOn)
			if err != nil {
				return err
			}
			for _, step := range steps {
				if step == changed {
					all["matrix"] = all["matrix"].Scale(2)
				}
				if err := l.Write(ctx, step, 1/float64(step), stateOf(all)); err != nil {
					return err
				}
			}
			return l.Close()
		})
		return path
	}
	list := settings()
	a := write("a", list[0], []int{1, 2, 3}, false, 0)
	b := write("b", list[6], []int{1}, false, 0)
	write("b", list[4], []int{2, 3, 4}, true, 0) // a restart on another number of ranks
	d, err := Diff(a, b)
	if err != nil || !d.Equal() || d.Compared != 3 {
		t.Errorf("equal runs: %+v, %v", d, err)
	}
	c := write("c", list[5], []int{1, 2, 3}, false, 2)
	d, err = Diff(a, c)
	if err != nil || d.Step != 2 || len(d.Tensors) != 1 || d.Tensors[0].Name != "matrix" || len(d.Tensors[0].Ranges) == 0 {
		t.Errorf("step 2 differs: %+v, %v", d, err)
	}
	text, err := os.ReadFile(c)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(dir, "cut")
	if err := os.WriteFile(cut, text[:len(text)-20], 0o666); err != nil {
		t.Fatal(err)
	}
	if d, err = Diff(a, cut); err != nil || d.Step != 2 {
		t.Errorf("last line cut off: %+v, %v", d, err)
	}
	for bad, want := range map[string]string{
		"{\"format\":\"gorun digest\",\"version\":2}\n":                                                                "version 2",
		"{\"format\":\"gorun digest\",\"version\":1}\n[]\n":                                                            "line 2",
		"{\"format\":\"gorun digest\",\"version\":1}\n{\"step\":9}\n":                                                  "no step in common",
		"{\"format\":\"gorun digest\",\"version\":1}\n{\"step\":1,\"loss\":\"1\",\"tensors\":[{\"name\":\"cube\"}]}\n": "has no element type",
	} {
		if err := os.WriteFile(cut, []byte(bad), 0o666); err != nil {
			t.Fatal(err)
		}
		if d, err := Diff(a, cut); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %+v, %v; want %q", bad, d, err, want)
		}
	}
}

// TestDiffOfCheckpoints compares checkpoints of every setting, and one with an element changed.
func TestDiffOfCheckpoints(t *testing.T) {
	for i, from := range settings() {
		fs := newMemFS()
		save(t, fs, "a", from, 3, tensor.Float32, Options{blockBytes: []int{7, 16, 64, 1 << 20}[i%4]})
		to := settings()[(i+5)%len(settings())]
		save(t, fs, "b", to, 3, tensor.Float32, Options{blockBytes: 20})
		if d, err := diffCheckpoints(fs, "a", "b"); err != nil || !d.Equal() {
			t.Errorf("%s and %s: %+v, %v", from.name, to.name, d, err)
		}
		onSetting(t, to, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
			all := full(m, to, tensor.Float32, false)
			x := tensor.Zeros(m.Device(), tensor.Float32, 3, 4, 5)
			for i := range 60 {
				tensor.Data[float32](x)[i] = float32(value("cube", i))
			}
			tensor.Data[float32](x)[17] = math.Nextafter32(math.Nextafter32(float32(value("cube", 17)), 1000), 1000)
			tensor.Data[float32](x)[40] = float32(math.NaN())
			all["cube"] = dtensor.Distribute(m, x, to.placed([]int{3, 4, 5})...)
			store, err := Open(ctx, world, "c", Options{fs: fs})
			if err != nil {
				return err
			}
			return errors.Join(store.Save(ctx, 3, stateOf(all)), store.Wait())
		})
		d, err := diffCheckpoints(fs, "a", "c")
		if err != nil || len(d.Tensors) != 1 {
			t.Fatalf("%s and %s: %+v, %v", from.name, to.name, d, err)
		}
		got := d.Tensors[0]
		want := TensorDifference{Name: "cube", Types: []string{"float32 [3 4 5]"}, Ranges: [][2]int{{16, 20}, {40, 44}}, Elements: 2,
			Index: []int{0, 3, 2}, Values: got.Values, ULPs: 2, NaNs: 1}
		if fmt.Sprint(got) != fmt.Sprint(want) || !strings.HasPrefix(got.Values[0], fmt.Sprint(value("cube", 17))) {
			t.Errorf("%s and %s:\n%+v, want\n%+v", from.name, to.name, got, want)
		}
	}
}

func TestULPs(t *testing.T) {
	bits := func(f float32) uint64 { return uint64(math.Float32bits(f)) }
	for _, c := range []struct {
		dt   tensor.DType
		a, b uint64
		want uint64
		ok   bool
	}{
		{tensor.Float32, bits(1), bits(math.Nextafter32(1, 2)), 1, true},
		{tensor.Float32, bits(0), bits(float32(math.Copysign(0, -1))), 0, true},
		{tensor.Float32, bits(math.Nextafter32(0, 1)), bits(math.Nextafter32(0, -1)), 2, true},
		{tensor.Float32, bits(1), bits(float32(math.NaN())), 0, false},
		{tensor.Float64, math.Float64bits(-math.MaxFloat64), math.Float64bits(math.Inf(-1)), 1, true},
		{tensor.BFloat16, 0x3f80, 0x3f83, 3, true},
		{tensor.Int64, 1 << 63, math.MaxInt64, math.MaxUint64, true},
		{tensor.Int8, 0xff, 1, 2, true},
		{tensor.Uint8, 0xff, 1, 254, true},
	} {
		if got, ok := ulps(c.dt, c.a, c.b); got != c.want || ok != c.ok {
			t.Errorf("%v %#x %#x: %d, %v; want %d, %v", c.dt, c.a, c.b, got, ok, c.want, c.ok)
		}
	}
}

// FuzzDigests reads any text as a file of digests and compares it with itself.
func FuzzDigests(f *testing.F) {
	f.Add([]byte("{\"format\":\"gorun digest\",\"version\":1,\"ranks\":1}\n" +
		`{"step":1,"loss":"2.5","tensors":[{"name":"w","dtype":"F32","shape":[2],"ranges":"0000000000000001ffffffffffffffff"}]}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		run, err := readDigests(strings.NewReader(string(text)))
		if err != nil {
			return
		}
		if d, err := diffRuns(run, run); err == nil && (!d.Equal() || d.Compared != len(run.steps)) {
			t.Errorf("a run differs from itself: %+v", d)
		}
	})
}

// TestSHA256 compares the sum of every setting with that of the elements in order.
func TestSHA256(t *testing.T) {
	h := sha256.New()
	list := shapes()
	for _, name := range slices.Sorted(maps.Keys(list)) {
		fmt.Fprintf(h, "%s float32 %v\n", name, list[name])
		for i := range numel(list[name]) {
			h.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(value(name, i)))))
		}
	}
	want := hex.EncodeToString(h.Sum(nil))
	for _, s := range settings() {
		onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
			if got, err := SHA256(ctx, world, stateOf(full(m, s, tensor.Float32, false))); err != nil || got != want {
				return fmt.Errorf("%s: %s, %v; want %s", s.name, got, err, want)
			}
			return nil
		})
	}
}
