package embedding

import (
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// Unpooled is what Rows returns: for each feature a row for each id.
type Unpooled struct {
	c      *Collection
	values []*dtensor.Tensor // by feature
}

// Feature returns the rows of the ids of one feature, [n, D], n being the number
// of its ids in all samples, one sample after the other. It is sharded as the
// samples are: each rank has the rows of its own. It throws an *Error for a
// feature that the collection does not have.
func (u *Unpooled) Feature(name string) *dtensor.Tensor { return u.values[u.c.mustFind(name)] }

// Rows looks up the ids of all features without pooling them. The samples may be
// sharded over one axis of more than one rank; weights are ignored, and a
// PaddingIdx gets no gradient. With same bits every rank gathers the whole batch first. It throws as Bags does.
func (c *Collection) Rows(j *Jagged) *Unpooled {
	const op = "Rows"
	if c.mesh.Inside() {
		j = j.expanded()
	}
	at := c.columns(op, j)
	axis := -1
	for i, p := range j.batch.Placements() {
		if !p.IsShard() || c.mesh.Axes()[i].Size == 1 {
			continue
		}
		if axis >= 0 {
			refuse(op, "the samples %v are sharded over two axes of more than one rank; shard them over one, or use Bags", j.batch)
		}
		axis = i
	}
	u := &Unpooled{c: c}
	if !c.mesh.Inside() {
		// The number of ids is not known here, and nothing of them is held.
		for _, f := range c.features {
			places := make([]layout.Placement, len(c.mesh.Axes()))
			u.values = append(u.values, c.mesh.Wrap(op, tensor.New(c.mesh.Device(), c.dtype, 0), nil, false, []int{0, f.width}, places...))
		}
		return u
	}
	if c.mesh.SameBits() && axis >= 0 {
		return c.rowsOfAll(j, at, axis)
	}
	v := c.newLookup(op, j, at, true)
	u.values = v.share(axis).values
	return u
}

// rowsOfAll is Rows with same bits, of samples that are sharded over an axis: each owner adds up the gradients of all samples
// in their order.
func (c *Collection) rowsOfAll(j *Jagged, at []int, axis int) *Unpooled {
	u := c.Rows(j.gathered())
	group := c.mesh.Group(c.mesh.Axes()[axis].Name)
	mine := make([]int64, len(c.features))
	for f := range mine {
		mine[f] = int64(j.idsOf(at[f]).Numel())
	}
	all := gatherAll(c.mesh, group, mine, slices.Repeat([]int{len(mine)}, group.Size()), "ids of a batch by rank")
	for f := range u.values {
		counts := make([]int, group.Size())
		for r := range counts {
			counts[r] = int(all[r*len(mine)+f])
		}
		places := c.mesh.Every(layout.Replicate())
		places[axis] = layout.ShardSizes(0, counts...)
		u.values[f] = u.values[f].Redistribute(places...)
	}
	return u
}

// shares are the results of one unpooled lookup. All tables have one gradient
// exchange, so all results come from one recorded operator: a list of as many
// numbers as they have together, which nobody reads. Its gradient is one list
// too: the first result whose gradient arrives hands it on, the others write
// their parts into it.
type shares struct {
	values []*dtensor.Tensor
	grad   *dtensor.Tensor // nil until the first arrives
}

// share makes the results of a lookup whose samples are sharded over an axis, -1
// for none.
func (v *batchLookup) share(axis int) *shares {
	const op = "Rows"
	c, s := v.c, &shares{}
	at := make([]int, len(c.features)) // where each feature begins in the list
	mine, sizes := 0, make([]int, 1)
	if axis >= 0 {
		sizes = make([]int, c.mesh.Axes()[axis].Size)
	}
	placed := func(n []int) (total int, places []layout.Placement) {
		places = make([]layout.Placement, len(c.mesh.Axes()))
		if axis >= 0 {
			places[axis] = layout.ShardSizes(0, n...)
		}
		return ints.Sum(n), places
	}
	for f := range c.features {
		at[f] = mine
		mine += v.j.idsOf(v.at[f]).Numel() * c.features[f].width
		for r := range sizes {
			sizes[r] += int(v.count[f][r]) * c.features[f].width
		}
	}
	total, flat := placed(sizes)
	list := c.mesh.Wrap(op, tensor.New(c.mesh.Device(), c.dtype, mine), nil, false, []int{total}, flat...)
	list = dtensor.Record(op, list, c.inputs(), func(gy *dtensor.Tensor) []dtensor.Grad {
		dy := tensor.Widen(gy.Redistribute(flat...).Local())
		return v.grads(func(t, i, f int) *tensor.Tensor {
			n, w := v.j.idsOf(v.at[f]).Numel(), c.features[f].width
			return tensor.Narrow(dy, 0, at[f], n*w).Reshape(n, w)
		})
	})
	s.values = make([]*dtensor.Tensor, len(c.features))
	all := v.unpack(v.got)
	for t := range c.tables {
		for i, f := range c.of[t] {
			n, w := v.j.idsOf(v.at[f]).Numel(), c.features[f].width
			y := tensor.TakeRows(all[t], tensor.Narrow(v.distinct[t].Slot, 0, v.first[t][i], n), 0)
			counts := make([]int, len(sizes))
			for r := range counts {
				counts[r] = int(v.count[f][r])
			}
			rows, places := placed(counts)
			out := c.mesh.Wrap(op, y, nil, false, []int{rows, w}, places...)
			s.values[f] = dtensor.Record(op, out, []*dtensor.Tensor{list}, func(gy *dtensor.Tensor) []dtensor.Grad {
				dy := gy.Redistribute(places...).Local()
				first := s.grad == nil
				if first {
					s.grad = c.mesh.Wrap(op, tensor.Zeros(dy.Device(), dy.DType(), mine), nil, false, []int{total}, flat...)
				}
				tensor.Copy(tensor.Narrow(s.grad.Local(), 0, at[f], n*w), dy.Reshape(n*w))
				if first {
					return []dtensor.Grad{dtensor.Dense(s.grad)}
				}
				return []dtensor.Grad{{}}
			})
		}
	}
	v.got = nil
	return s
}
