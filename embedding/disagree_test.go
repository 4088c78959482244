package embedding_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// TestRanksOfOtherTablesDisagree gives rank 1 other tables: the lookup's error names both.
func TestRanksOfOtherTablesDisagree(t *testing.T) {
	one, two := 1, 1.0
	for name, change := range map[string]func(c *embedding.CollectionTable){
		"float32 [9, 4]":    func(c *embedding.CollectionTable) { c.Rows = 9 },
		"float32 [8, 5]":    func(c *embedding.CollectionTable) { c.Dim = 5 },
		"bfloat16 [8, 4]":   func(c *embedding.CollectionTable) { c.DType = tensor.BFloat16 },
		`"others"`:          func(c *embedding.CollectionTable) { c.Name = "others" },
		"[8, 4] S(1)":       func(c *embedding.CollectionTable) { c.Layout = embedding.ColumnWise("a") },
		"mode max":          func(c *embedding.CollectionTable) { c.Mode = embedding.Max },
		"padding 1":         func(c *embedding.CollectionTable) { c.PaddingIdx = &one },
		"norm 2 of at most": func(c *embedding.CollectionTable) { c.MaxNorm = &two },
		"by frequency":      func(c *embedding.CollectionTable) { c.ScaleGradByFreq = true },
		"user, guest of":    func(c *embedding.CollectionTable) { c.Features = append(c.Features, "guest") },
	} {
		disagree(t, name, func(m *dtensor.Mesh, first bool) {
			table := embedding.CollectionTable{Config: embedding.Config{Name: "users", Rows: 8, Dim: 4, Layout: embedding.RowWise("a")},
				Features: []string{"user"}, Mode: embedding.Sum}
			if !first {
				change(&table)
			}
			c := embedding.NewCollection(m, table)
			j, err := embedding.NewJagged(m, []string{"user", "guest"}, 2, []int{1, 0}, []int64{3}, nil, layout.Shard(0))
			dtensor.Check(err)
			c.Bags(j)
		})
	}
	disagree(t, "float32 [8, 5] S(0)", func(m *dtensor.Mesh, first bool) {
		width := 4
		if !first {
			width = 5
		}
		w := embedding.NewTable(m, embedding.Config{Rows: 8, Dim: width, Layout: embedding.RowWise("a")})
		w.Lookup(dtensor.Zeros(m, tensor.Int64, []int{4}, layout.Shard(0)))
	})
	disagree(t, "AdmitAfter:3", func(m *dtensor.Mesh, first bool) {
		c := embedding.DynamicConfig{Axis: "a", Dim: 4, Budget: 1 << 16}
		if !first {
			c.AdmitAfter = 3
		}
		embedding.NewDynamic(m, c).Lookup(dtensor.Zeros(m, tensor.Int64, []int{4}, layout.Shard(0)))
	})
}

// disagree runs f on two ranks, which are told which of them they are, and wants an error on both with a text in it.
func disagree(t *testing.T, want string, f func(m *dtensor.Mesh, first bool)) {
	t.Run(want, func(t *testing.T) {
		meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
			err := dtensor.Try(ctx, m, func() { f(m, m.Comm().Rank() == 0) })
			if !errors.Is(err, comm.ErrMismatch) || !strings.Contains(err.Error(), want) ||
				!strings.Contains(err.Error(), "give the same on all ranks") {
				return fmt.Errorf("got %v", err)
			}
			return nil
		})
	})
}
