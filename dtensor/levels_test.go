package dtensor_test

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/tensor"
)

var bitsFile = flag.String("dtensor.bits", "", "what TestOperatorsHaveTheBitsOfEveryInstructionSet has other processes write `FILE` with")

// longer are shapes with sums and rows longer than vectors, lanes, leaves and blocks.
var longer = map[string][][]int{
	"Exp": {{3, 1111}}, "Gelu": {{3, 1111}}, "GeluTanh": {{3, 1111}}, "Silu": {{3, 1111}}, "Tanh": {{3, 1111}}, "Sigmoid": {{3, 1111}},
	"Log": {{3, 1111}}, "Rsqrt": {{3, 1111}}, "MatMul": {{33, 1024}, {1024, 45}}, "Linear": {{65, 777}, {34, 777}, {34}},
	"Linear without bias": {{3, 512}, {70, 512}}, "Sum": {{5, 9001}}, "Sum first": {{130, 70}}, "Mean": {{33, 129}}, "Softmax": {{3, 9001}},
	"Softmax first": {{130, 70}}, "LogSoftmax": {{3, 9001}}, "LayerNorm": {{5, 9001}, {9001}, {9001}}, "RMSNorm": {{5, 9001}, {9001}},
	"Attention": {{2, 2, 130, 18}, {2, 2, 130, 18}, {2, 2, 130, 33}}, "Var": {{130, 70}}, "LogSumExp": {{3, 9001}}, "Norm 2": {{33, 9001}},
	"Einsum": {{2, 30, 600}, {2, 600, 50}}, "Cumsum": {{300, 3}},
}

// With SameBits every operator, forward and backward, has the same bits with every instruction set that this machine has, and
// with none. A process chooses when it starts, so each is one of its own.
func TestOperatorsHaveTheBitsOfEveryInstructionSet(t *testing.T) {
	if *bitsFile == "" && simd.Best() < simd.AVX2 {
		t.Skip("this machine has one set of kernels, which cannot be turned off")
	}
	got := bitsOfOperators(t)
	if *bitsFile != "" {
		if err := os.WriteFile(*bitsFile, []byte(strings.Join(got, "\n")), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	settings := []string{"cpu.avx2=off"}
	if simd.Best() >= simd.AVX512 {
		settings = append(settings, "cpu.avx512vl=off")
	}
	for _, setting := range settings {
		file := filepath.Join(t.TempDir(), "bits")
		c := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-dtensor.bits", file)
		c.Env = append(os.Environ(), "GODEBUG="+setting)
		if text, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", setting, err, text)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Split(string(text), "\n")
		if len(got) != len(want) || got[0] == want[0] {
			t.Fatalf("%d lines of %s, with %s %d of %s", len(got), got[0], setting, len(want), want[0])
		}
		for i := 1; i < len(got); i++ {
			if got[i] != want[i] {
				t.Errorf("%s, with %s %s", got[i], setting, want[i])
			}
		}
	}
}

// bitsOfOperators returns the instruction set, and a line for each operator, type and shapes, with hashes of its result and of its
// gradients.
func bitsOfOperators(t *testing.T) (lines []string) {
	lines = append(lines, simd.Best().String())
	for _, base := range opCases {
		types := typesOf(t, base.name)
		for _, dt := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16} {
			if !slices.Contains(types, dt) {
				continue
			}
			c := base.of(dt)
			all := c.shapes
			if more, ok := longer[base.name]; ok {
				all = append(all[:len(all):len(all)], more)
			}
			onMesh(t, []int{1}, func(ctx context.Context, m *dtensor.Mesh) error {
				m.SetSameBits(true)
				for _, shapes := range all {
					a, err := c.run(ctx, c.inputs(m, shapes))
					if err != nil {
						return fmt.Errorf("%s, shapes %v: %w", c.name, shapes, err)
					}
					line := fmt.Sprintf("%s %v: %x", c.name, shapes, bitsOf(a.out))
					for _, g := range a.grads {
						if g.Dense() != nil {
							line += fmt.Sprintf(" %x", bitsOf(g.Dense()))
						}
					}
					lines = append(lines, line)
				}
				return nil
			})
		}
	}
	return lines
}

// bitsOf hashes the elements of a tensor; a NaN is a NaN.
func bitsOf(x T) uint64 {
	h := fnv.New64a()
	for _, v := range tensor.ToSlice[float64](tensor.Cast(x.Local(), tensor.Float64)) {
		if v != v {
			v = math.NaN()
		}
		fmt.Fprintf(h, "%x ", math.Float64bits(v))
	}
	return h.Sum64()
}
