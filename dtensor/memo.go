package dtensor

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/dtensor/layout"
)

// slots is how many entries stand in front of a memo's map.
const slots = 32

// A memo remembers what was worked out for a key. A training step asks for the same few keys
// again and again. The front answers these by one comparison; a map must hash the whole key.
type memo[K comparable, V any] struct {
	front [slots]struct {
		key   K
		value *V
	}
	all map[K]*V
}

// get returns the value of a key, nil if there is none. slot spreads keys over the front: equal
// keys have equal slots.
func (m *memo[K, V]) get(slot uintptr, key *K) *V {
	if at := &m.front[slot%slots]; at.value != nil && at.key == *key {
		return at.value
	}
	return m.find(slot, key)
}

// find is get by the map. What it finds comes to the front.
func (m *memo[K, V]) find(slot uintptr, key *K) *V {
	v, ok := m.all[*key]
	if !ok {
		return nil
	}
	at := &m.front[slot%slots]
	at.key, at.value = *key, v
	return v
}

// put enters the value of a key that has none. A memo of many keys starts anew.
func (m *memo[K, V]) put(key K, value *V) {
	if m.all == nil || len(m.all) >= maxSpecs {
		m.clear()
		m.all = map[K]*V{}
	}
	m.all[key] = value
}

// clear forgets everything.
func (m *memo[K, V]) clear() { *m = memo[K, V]{} }

// where returns the address of a spec, mixed: addresses are multiples of a size class.
func (s *spec) where() uintptr { return uintptr(unsafe.Pointer(s)) >> 4 * 0x9e3779b1 >> 8 }

// slot spreads keys over the front of a memo.
func (k *ruleKey) slot() uintptr {
	return k.in[0].where() ^ k.in[1].where()<<1 ^ uintptr(len(k.op)) ^ uintptr(k.attr[0]+k.attr[1])<<2
}

// slot spreads keys over the front of a memo.
func (k *planKey) slot() uintptr { return k.from.where() ^ k.to.where()<<1 ^ uintptr(len(k.cause)) }

// recent has specs that newSpec was asked for lately. It saves making the Layout that finds a
// spec, which costs more than a small operator.
type recent [slots]*spec

// slotOf spreads shapes and placements.
func slotOf(shape []int, placements []layout.Placement) uintptr {
	h := uintptr(len(shape))
	for _, n := range shape {
		h = h*31 + uintptr(n)
	}
	for _, p := range placements {
		dim, shards := p.Dim()
		h = h*31 + uintptr(dim)
		if shards {
			h += 7
		}
	}
	return h % slots
}
