package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/checkpoint"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

// An expected is what testdata/reference.py has computed with PyTorch.
type expected struct {
	IDs       []int64     `json:"ids"`
	Logits    [][]float64 `json:"logits"`
	Continued []int64     `json:"continued"`
	Loss      float64     `json:"loss"`
	GradNorm  float64     `json:"grad_norm"`
}

func readExpected(t *testing.T, dir string) (e expected) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	if err == nil {
		err = json.Unmarshal(text, &e)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// onMeshes runs f with the model in dir on every mesh of 1 to 4 ranks.
func onMeshes(t *testing.T, dir string, sequence bool, f func(ctx context.Context, world *comm.Comm, m *model) error) {
	t.Helper()
	for _, size := range [][2]int{{1, 1}, {1, 2}, {2, 1}, {1, 3}, {1, 4}, {2, 2}} {
		commtest.Run(t, size[0]*size[1], func(ctx context.Context, world *comm.Comm) error {
			m, err := open(ctx, world, dir, size[0], size[1], sequence)
			if err != nil {
				return err
			}
			if err := f(ctx, world, m); err != nil {
				return fmt.Errorf("mesh %v: %w", size, err)
			}
			return nil
		})
	}
}

func open(ctx context.Context, world *comm.Comm, dir string, dp, tp int, sequence bool) (*model, error) {
	mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: dp}, dtensor.Axis{Name: "tp", Size: tp})
	if err != nil {
		return nil, err
	}
	c, err := readConfig(dir)
	if err != nil {
		return nil, err
	}
	m, err := newModel(ctx, mesh, c, sequence)
	if err != nil {
		return nil, err
	}
	return m, m.load(ctx, world, dir)
}

func models() []string { return []string{"testdata/gpt2", "testdata/llama", "testdata/qwen3"} }

// logits returns the scores of one text, [T·V].
func (m *model) logits(ctx context.Context, ids []int64) (list []float32, err error) {
	err = dtensor.Try(ctx, m.mesh, func() {
		x := dtensor.Distribute(m.mesh, tensor.FromSlice(m.mesh.Device(), ids, 1, len(ids)), m.mesh.Every(layout.Replicate())...)
		list = slices.Clone(tensor.ToSlice[float32](m.Forward(x, nil).Full()))
	})
	return list, err
}

// Logits are those of PyTorch within 1e-4, and greedy generation, with a cache and without,
// adds the same tokens.
func TestAgainstPyTorch(t *testing.T) {
	for _, dir := range models() {
		want := readExpected(t, dir)
		for _, sequence := range []bool{false, true} {
			onMeshes(t, dir, sequence, func(ctx context.Context, world *comm.Comm, m *model) error {
				got, err := m.logits(ctx, want.IDs)
				if err != nil {
					return err
				}
				for i, v := range slices.Concat(want.Logits...) {
					if !(math.Abs(float64(got[i])-v) <= 1e-4) {
						return fmt.Errorf("%s: logit %d is %v, want %v", dir, i, got[i], v)
					}
				}
				for _, recompute := range []bool{false, true} {
					next, err := m.generate(ctx, want.IDs, len(want.Continued), sampling{recompute: recompute})
					if err != nil {
						return err
					}
					if !slices.Equal(next, want.Continued) {
						return fmt.Errorf("%s: it goes on %v, want %v; recompute %v", dir, next, want.Continued, recompute)
					}
				}
				return nil
			})
		}
	}
}

// The loss and the norm of all gradients are those of PyTorch.
func TestGradients(t *testing.T) {
	for _, dir := range models() {
		want := readExpected(t, dir)
		for _, sequence := range []bool{false, true} {
			onMeshes(t, dir, sequence, func(ctx context.Context, world *comm.Comm, m *model) error {
				row := func(ids []int64) *tensor.Tensor { // twice, so that dp has something to divide
					return tensor.FromSlice(m.mesh.Device(), slices.Concat(ids, ids), 2, len(ids))
				}
				last := len(want.IDs) - 1
				ids, targets := row(want.IDs[:last]), row(want.IDs[1:])
				params := nn.Tensors(m.Params())
				value, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return m.loss(m.batch(ids), m.batch(targets)) }, params...)
				if err != nil {
					return err
				}
				norm, err := optim.ClipGradNorm(ctx, params, grads, 1)
				if err != nil {
					return err
				}
				if l := value.Item(); math.Abs(l-want.Loss) > 1e-4 || math.Abs(norm-want.GradNorm) > 1e-3 {
					return fmt.Errorf("%s: loss %v and norm %v, want %v and %v", dir, l, norm, want.Loss, want.GradNorm)
				}
				return nil
			})
		}
	}
}

// Training makes the text likelier, the same on every mesh, and the model that is written
// has the names and shapes of the one that was read and loads again.
func TestFinetune(t *testing.T) {
	for _, dir := range models() {
		want := readExpected(t, dir)
		var losses []float64
		onMeshes(t, dir, true, func(ctx context.Context, world *comm.Comm, m *model) error {
			var got []float64
			o := tuning{batch: 4, context: 6, steps: 12, rate: 0.03, seed: 1, report: func(_ int, loss float64) { got = append(got, loss) }}
			for range 20 {
				for _, id := range want.IDs {
					o.tokens = append(o.tokens, int32(id))
				}
			}
			if err := m.finetune(ctx, o); err != nil {
				return err
			}
			if world.Size() == 1 {
				losses = got
			}
			near := func(a, b float64) bool { return math.Abs(a-b) < 1e-3 }
			if !slices.EqualFunc(got, losses, near) || got[11] > got[0]/2 {
				return fmt.Errorf("losses %v, on one rank %v", got, losses)
			}
			if world.Size() != 4 {
				return nil
			}
			return exported(ctx, world, m, dir, filepath.Join(t.TempDir(), m.mesh.String()))
		})
	}
}

// exported writes the model to a folder, of which all ranks take rank 0's name, and reads it.
func exported(ctx context.Context, world *comm.Comm, m *model, dir, folder string) error {
	name := make([]byte, 4096)
	copy(name, folder)
	if err := comm.Broadcast(ctx, world, name, 0); err != nil {
		return err
	}
	folder = strings.TrimRight(string(name), "\x00")
	if err := m.export(ctx, world, folder); err != nil {
		return err
	}
	if world.Rank() == 0 {
		if err := copyAround(dir, folder); err != nil {
			return err
		}
	}
	if err := comm.Barrier(ctx, world); err != nil {
		return err
	}
	was, err := checkpoint.Tensors(dir)
	if err != nil {
		return err
	}
	is, err := checkpoint.Tensors(folder)
	if err != nil {
		return err
	}
	shapes := func(list []checkpoint.TensorInfo) []string {
		var lines []string
		for _, t := range list {
			if name := strings.TrimPrefix(t.Name, "transformer."); !strings.HasSuffix(name, ".attn.bias") {
				lines = append(lines, fmt.Sprint(name, t.Shape))
			}
		}
		slices.Sort(lines)
		return lines
	}
	if a, b := shapes(is), shapes(was); !slices.Equal(a, b) {
		return fmt.Errorf("the file has %v, want %v", a, b)
	}
	ids := []int64{1, 2, 3}
	want, err := m.logits(ctx, ids)
	if err != nil {
		return err
	}
	other, err := open(ctx, world, folder, 4, 1, false)
	if err != nil {
		return err
	}
	got, err := other.logits(ctx, ids)
	if err != nil {
		return err
	}
	for i := range got {
		if math.Abs(float64(got[i]-want[i])) > 1e-4 {
			return fmt.Errorf("after loading logit %d is %v, want %v", i, got[i], want[i])
		}
	}
	return nil
}

// Texts go through the tokenizer of the model, or are ids.
func TestTexts(t *testing.T) {
	o, err := parse([]string{"-model", "../../data/tokenizer/testdata/gpt2", "-prompt", "x"})
	if err != nil {
		t.Fatal(err)
	}
	texts, err := newTexts(o)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := texts.encode("The dog, the 2 dogs")
	if got := texts.decode(append(texts.begin(ids), 1<<30)); err != nil || got != "The dog, the 2 dogs" || len(ids) == 0 {
		t.Errorf("%q from %v; %v", got, ids, err)
	}
	o.ids = true
	if texts, err = newTexts(o); err != nil {
		t.Fatal(err)
	}
	if ids, err = texts.encode("5, 6\n7"); err != nil || texts.decode(texts.begin(ids)) != "5 6 7" {
		t.Errorf("%v; %v", ids, err)
	}
	if _, err = texts.encode("5 x"); err == nil || !strings.Contains(err.Error(), `"x" is not a token id`) {
		t.Errorf("got %v", err)
	}
	if _, err := newTexts(&options{model: "testdata/llama"}); err == nil || !strings.Contains(err.Error(), "-ids") {
		t.Errorf("got %v", err)
	}
}

// What cannot be computed as transformers does is refused by name.
func TestConfigRefusals(t *testing.T) {
	for text, says := range map[string]string{
		`{"model_type": "bert"}`:                                                                                     `model_type is "bert"`,
		`{"model_type": "gpt2", "activation_function": "swish"}`:                                                     "activation_function",
		`{"model_type": "gpt2"}`:                                                                                     "have to be given",
		`{"model_type": "llama", "hidden_act": "gelu"}`:                                                              "hidden_act",
		`{"model_type": "llama", "attention_bias": true}`:                                                            "mlp_bias",
		`{"model_type": "mistral", "sliding_window": 10, "max_position_embeddings": 20}`:                             "sliding_window",
		`{"model_type": "llama", "rope_scaling": {"rope_type": "yarn"}}`:                                             "yarn",
		`{"model_type": "llama", "vocab_size": 3, "hidden_size": 8, "num_attention_heads": 2, "hidden_act": "silu"}`: "have to be given",
	} {
		if _, err := parseConfig([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", text, err, says)
		}
	}
}

// batch divides a batch of windows over dp: [B, T] S(0),R.
func (m *model) batch(whole *tensor.Tensor) *dtensor.Tensor {
	return dtensor.Distribute(m.mesh, whole, layout.Shard(0), layout.Replicate())
}
