package nn

import "github.com/gorun-spmd/gorun/dtensor"

// A KVCache has the keys and values that one Attention has computed for the positions so
// far, so that a model that generates text computes only with the new ones. The zero
// value is empty. It has no gradient.
//
//	caches := make([]nn.KVCache, layers)
//	h = block[i].ForwardWith(h, nn.AttentionInput{Cache: &caches[i]}) // [B, T, C], T new positions
type KVCache struct {
	k, v *dtensor.Tensor // [B, KVHeads, S, D] S(1)
}

// Len returns the number of positions.
func (c *KVCache) Len() int {
	if c == nil || c.k == nil {
		return 0
	}
	return c.k.Dim(2)
}

// add appends new positions, and returns the keys and values of all.
func (c *KVCache) add(k, v *dtensor.Tensor) (allK, allV *dtensor.Tensor) {
	if c == nil {
		return k, v
	}
	k, v = k.Detach(), v.Detach()
	if c.k != nil {
		k, v = dtensor.Cat(2, c.k, k), dtensor.Cat(2, c.v, v)
	}
	dtensor.Keep(k, v)
	c.k, c.v = k, v
	return k, v
}
