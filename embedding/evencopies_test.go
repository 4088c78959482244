package embedding_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// A copier is a CPU that counts the numbers of rows that it writes by copying or adding up.
type copier struct {
	tensor.Device
	numbers int
}

func (c *copier) TakeRows(elemBytes int, dst, table unsafe.Pointer, ids kernel.Index, t kernel.Table, zero bool) {
	c.numbers += ids.N * t.Dim
	c.Device.TakeRows(elemBytes, dst, table, ids, t, zero)
}

func (c *copier) CopyLoop(elemBytes int, dst, src unsafe.Pointer, l kernel.Loop) {
	c.numbers += l.Numel()
	c.Device.CopyLoop(elemBytes, dst, src, l)
}

func (c *copier) SumSegments(dt dtype.DType, dst, values unsafe.Pointer, s kernel.Segments, dim int) {
	c.numbers += s.N * dim
	c.Device.SumSegments(dt, dst, values, s, dim)
}

// Bags of one id each are one copy of all rows: those of distinct ids are written once by their owner and once as the bags,
// and on the way back once as the sums of their gradients, which other ranks' owners pack, join and add up. With an id more
// the features are bags of their own, each of which is added up and then copied.
func TestEvenBagsAreOneCopy(t *testing.T) {
	const samples, features, dim = 32, 4, 8
	for _, c := range []struct{ ranks, forward, backward int }{{1, 2, 1}, {2, 2, 4}} { // how often each number is written
		ids := samples / c.ranks * features // of a rank; they are copied too
		forward, backward := c.forward*ids*dim+ids, c.backward*ids*dim+ids
		commtest.Run(t, c.ranks, func(ctx context.Context, world *comm.Comm) error {
			dev := &copier{Device: tensor.NewCPU(world.Memory())}
			world.Internals().Attr(dtensor.DeviceKey{}, func() any { return tensor.Device(dev) })
			m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "a", Size: c.ranks})
			if err != nil {
				return err
			}
			m.CheckReplicas(false) // what the checks copy is not counted
			f, b, err := written(ctx, m, dev, samples, features, dim, 0)
			if err != nil {
				return err
			}
			if f > forward || b > backward {
				return fmt.Errorf("%d numbers are written forward and %d backward; want at most %d and %d", f, b, forward, backward)
			}
			if f, b, err = written(ctx, m, dev, samples, features, dim, 1); err == nil && (f <= forward || b <= backward) {
				err = fmt.Errorf("with an id more %d numbers are written forward and %d backward, which is no more; count what it copies", f, b)
			}
			return err
		})
	}
}

// written returns how many numbers dev writes for bags of a collection, and for their gradients. The first bag of a rank has
// more ids than one.
func written(ctx context.Context, m *dtensor.Mesh, dev *copier, samples, features, dim, more int) (forward, backward int, err error) {
	scope := m.Device().Open()
	defer scope.Close()
	mine := samples / m.Size()
	tables, lists := make([]embedding.CollectionTable, features), make([]embedding.Lists, features)
	for f := range tables {
		name := fmt.Sprint("f", f)
		tables[f] = embedding.CollectionTable{Mode: embedding.Sum, Features: []string{name},
			Config: embedding.Config{Name: name, Rows: 2 * samples, Dim: dim, Layout: embedding.RowWise("a")}}
		lists[f].Feature = name
		for s := range mine {
			lists[f].IDs, lists[f].Lengths = append(lists[f].IDs, int64(2*(m.Comm().Rank()*mine+s))), append(lists[f].Lengths, 1)
		}
	}
	lists[0].IDs, lists[0].Lengths[0] = append(slices.Repeat([]int64{1}, more), lists[0].IDs...), 1+more
	var c *embedding.Collection
	if err := dtensor.Try(ctx, m, func() {
		c = embedding.NewCollection(m, tables...)
		dtensor.Keep(c.Params()...)
	}); err != nil {
		return 0, 0, err
	}
	j, err := embedding.JaggedOf(m, samples, lists, layout.Shard(0))
	if err != nil {
		return 0, 0, err
	}
	begin := 0
	_, _, err = dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		begin = dev.numbers
		bags := c.Bags(j).Values()
		forward = dev.numbers - begin
		seed := dtensor.Full(m, tensor.Float32, 1, bags.Shape(), layout.Shard(0))
		zero := dtensor.Zeros(m, tensor.Float32, nil, layout.Replicate())
		begin = dev.numbers
		return dtensor.Record("Seed", zero, []*dtensor.Tensor{bags}, func(*dtensor.Tensor) []dtensor.Grad {
			return []dtensor.Grad{dtensor.Dense(seed)}
		})
	}, c.Params()...)
	return forward, dev.numbers - begin, err
}
