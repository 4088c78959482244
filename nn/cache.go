package nn

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// A KVCache has the keys and values that one Attention has computed for earlier positions,
// so that a model that generates text computes new positions only. The zero value is
// empty. It has no gradient.
//
//	caches := make(nn.KVCaches, layers)
//	h = block[i].ForwardWith(h, nn.AttentionInput{Cache: caches.At(i)}) // [B, T, C], T new positions
//
// Its memory grows by half when it is full, so a new position copies no others.
type KVCache struct {
	mesh   *dtensor.Mesh
	places []layout.Placement
	shape  []int          // [B, KVHeads, S, D] of the keys, S the positions so far
	k, v   *tensor.Tensor // this rank's, with room for more positions
}

// KVCaches are the caches of the layers of a model; nil: it has none.
type KVCaches []KVCache

// At returns the cache of layer i, nil if there are none.
func (c KVCaches) At(i int) *KVCache {
	if c == nil {
		return nil
	}
	if i < 0 || i >= len(c) {
		fault.Throw(fmt.Errorf("nn: KVCaches.At: layer %d of a model of %d; make as many caches as it has layers", i, len(c)))
	}
	return &c[i]
}

// Len returns the number of positions.
func (c KVCaches) Len() int {
	if len(c) == 0 {
		return 0
	}
	return c[0].Len()
}

// Len returns the number of positions.
func (c *KVCache) Len() int {
	if c == nil || c.shape == nil {
		return 0
	}
	return c.shape[2]
}

// Truncate forgets the positions from n on: in speculative decoding those of tokens that were not accepted. It throws unless n is
// from 0 to Len. A cache of 0 positions takes any batch.
func (c *KVCache) Truncate(n int) {
	if n < 0 || n > c.Len() {
		fault.Throw(fmt.Errorf("nn: KVCache.Truncate: %d of %d positions; give from 0 to Len", n, c.Len()))
	}
	switch {
	case n == 0:
		c.free()
		*c = KVCache{}
	case n < c.Len():
		c.shape[2] = n
	}
}

// Truncate truncates the caches of all layers.
func (c KVCaches) Truncate(n int) {
	for i := range c {
		c[i].Truncate(n)
	}
}

// Select makes sequence i of the batch the one that was index[i], as beam search needs it when it has chosen which beams go on. index
// [B'], of integers, may have an element more than once, or fewer elements than there are sequences. It throws a
// *tensor.IndexError for one that is out of range. The layout stays, and it moves what dtensor.Tensor.IndexSelect does.
func (c *KVCache) Select(index *dtensor.Tensor) {
	if c.Len() == 0 {
		return
	}
	k, v := c.all()
	k, v = k.IndexSelect(0, index), v.IndexSelect(0, index)
	c.shape = []int{k.Dim(0), c.shape[1], 0, c.shape[3]}
	c.free()
	c.add(k, v)
}

// free frees this rank's memory.
func (c *KVCache) free() {
	if c.k != nil {
		c.k.Free()
		c.v.Free()
		c.k, c.v = nil, nil
	}
}

// Select selects in the caches of all layers.
func (c KVCaches) Select(index *dtensor.Tensor) {
	for i := range c {
		c[i].Select(index)
	}
}

// add appends the keys and values of new positions.
func (c *KVCache) add(k, v *dtensor.Tensor) {
	shape := k.Shape()
	if c.shape == nil {
		c.mesh, c.places, c.shape = k.Mesh(), k.Placements(), []int{shape[0], shape[1], 0, shape[3]}
		for i, p := range c.places {
			if !p.IsShard() || p.Shards(2) {
				c.places[i] = layout.Replicate()
			}
		}
	}
	before := c.Len()
	shape[2] = before
	if k.Mesh() != c.mesh || !slices.Equal(shape, c.shape) {
		fault.Throw(fmt.Errorf("nn: Attention with a KVCache: keys %v do not fit those of the %d positions before, %v; "+
			"use a new cache for each batch of texts, or Select its sequences", k, before, c.shape))
	}
	c.shape[2] += k.Dim(2)
	if !c.mesh.Inside() {
		return
	}
	c.k = appended(c.k, k.Detach().Redistribute(c.places...).Local(), before)
	c.v = appended(c.v, v.Detach().Redistribute(c.places...).Local(), before)
}

// appended returns all, with the positions of some after the first before ones: in place, or
// in a larger copy if there is no room.
func appended(all, some *tensor.Tensor, before int) *tensor.Tensor {
	n := before + some.Dim(2)
	sizes := slices.Clone(some.Shape())
	if all == nil || n > all.Dim(2) {
		sizes[2] = n + n/2
		more := tensor.Zeros(some.Device(), some.DType(), sizes...).Persist()
		if sizes[2] = before; all != nil {
			tensor.CopyBox(more, make([]int, 4), all, make([]int, 4), sizes)
			all.Free()
		}
		all = more
	}
	sizes[2] = some.Dim(2)
	tensor.CopyBox(all, []int{0, 0, before, 0}, some, make([]int, 4), sizes)
	return all
}

// all returns a copy of the keys and values of all positions.
func (c *KVCache) all() (k, v *dtensor.Tensor) {
	copied := func(t *tensor.Tensor) *dtensor.Tensor {
		if c.mesh.Inside() {
			t = tensor.Narrow(t, 2, 0, c.Len())
		}
		return c.mesh.Wrap("KVCache", t, nil, false, c.shape, c.places...)
	}
	return copied(c.k), copied(c.v)
}

// attend returns the attention of the last position, q [B, H, 1, D], to all. The queries that
// share a head of keys are rows of one product with it.
func (c *KVCache) attend(q *dtensor.Tensor) *dtensor.Tensor {
	const op = "Attention over a cache"
	defer c.mesh.Span(op).End()
	shape := []int{c.shape[0], c.shape[1], q.Dim(1) / c.shape[1], c.shape[3]}
	rows := q.Reshape(shape...).Redistribute(c.places...)
	y := rows.Local()
	if c.mesh.Inside() {
		y = tensor.AttentionOver(y, c.k, c.v, c.Len())
	}
	return c.mesh.Wrap(op, y, nil, false, shape, c.places...).Reshape(q.Shape()...)
}
