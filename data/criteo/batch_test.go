package criteo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/mem"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// A batch on any mesh holds the lines that were asked for, in their order.
func TestBatchOnAMesh(t *testing.T) {
	const rows = 9
	d := &Data{}
	for i := range rows {
		d.Labels = append(d.Labels, float32(i%2))
		for j := range Dense {
			d.Counts = append(d.Counts, float32(100*i+j))
		}
		for f := range Categorical {
			d.Codes = append(d.Codes, int64(i*f%5)+Missing)
		}
	}
	v := NewVocabulary(d, 10)
	lines := []int{8, 0, 3, 3, 5}
	for _, shape := range [][]int{{1}, {2}, {2, 2}, {7}} {
		meshtest.On(t, shape, func(ctx context.Context, m *dtensor.Mesh) error {
			return dtensor.Try(ctx, m, func() {
				counts, labels, ids := d.Batch(m, v, lines)
				x, y := tensor.ToSlice[float32](counts.Full()), tensor.ToSlice[float32](labels.Full())
				offset, _ := labels.Offset()
				mine := lines[offset[0] : offset[0]+labels.LocalShape()[0]]
				for i, line := range lines {
					if !slices.Equal(x[i*Dense:(i+1)*Dense], d.Counts[line*Dense:(line+1)*Dense]) || y[i] != d.Labels[line] {
						dtensor.Throw(fmt.Errorf("line %d: counts %v, label %v", line, x[i*Dense:(i+1)*Dense], y[i]))
					}
				}
				keys, of := tensor.ToSlice[int64](d.Keys(m, lines).Full()), map[int64][2]int64{}
				for i, key := range keys {
					its := [2]int64{int64(i % Categorical), d.Codes[lines[i/Categorical]*Categorical+i%Categorical]}
					if before, ok := of[key]; ok && before != its {
						dtensor.Throw(fmt.Errorf("category %d with code %d has the key of %v", its[0], its[1], before))
					}
					of[key] = its
				}
				distinct := map[[2]int64]bool{}
				for _, its := range of {
					distinct[its] = true
				}
				if len(keys) != len(lines)*Categorical || len(distinct) != len(of) {
					dtensor.Throw(fmt.Errorf("%d keys, %d distinct ones of %d codes", len(keys), len(of), len(distinct)))
				}
				for f, name := range ids.Features() {
					lengths, ok := ids.Lengths(Feature(f))
					if name != Feature(f) || !ok || len(lengths) != len(mine) || slices.ContainsFunc(lengths, func(n int) bool { return n != 1 }) {
						dtensor.Throw(fmt.Errorf("feature %d is %q of lengths %v, want one row for each of %d samples", f, name, lengths, len(mine)))
					}
				}
			})
		})
	}
}

// All ranks get the log that rank 0 reads or invents, rank 0 alone hears of malformed lines, and an error of reading is one.
func TestLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(file, []byte(line("1", "3")+"what\n"+line("0")), 0o600); err != nil {
		t.Fatal(err)
	}
	meshtest.On(t, []int{3}, func(ctx context.Context, m *dtensor.Mesh) error {
		world := m.Comm()
		d, bad, err := Load(ctx, world, file, Options{})
		if err != nil {
			return err
		}
		if !slices.Equal(d.Labels, []float32{1, 0}) || d.Counts[0] == 0 || len(d.Codes) != 2*Categorical {
			return fmt.Errorf("%+v", d)
		}
		if (world.Rank() == 0) != (bad != nil) || bad != nil && bad.Lines != 1 {
			return fmt.Errorf("malformed lines on rank %d: %+v", world.Rank(), bad)
		}
		if d, bad, err = Load(ctx, world, "", Options{Rows: 7, Seed: 2, Strict: true}); err != nil || d.Rows() != 7 {
			return fmt.Errorf("%d invented rows, %v", d.Rows(), err)
		}
		if bad != nil && bad.Lines != 0 {
			return fmt.Errorf("%d invented lines are malformed", bad.Lines)
		}
		return nil
	})
	alone := comm.NewWorld(mem.Open(1)[0])
	if _, _, err := Load(t.Context(), alone, file, Options{Strict: true}); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Error(err)
	}
}
