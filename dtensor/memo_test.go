package dtensor

import (
	"math/rand/v2"
	"testing"
)

// A memo says what a map says, whatever keys share a slot and however often it starts anew.
func TestMemo(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var specs [20]spec
	var m memo[ruleKey, rule]
	want := map[ruleKey]*rule{}
	for i := range 100_000 {
		key := ruleKey{op: [...]string{"Add", "Sub", "Sum"}[r.IntN(3)], attr: [3]int{r.IntN(3)}}
		key.in[0], key.in[1] = &specs[r.IntN(len(specs))], &specs[r.IntN(len(specs))]
		if got := m.get(key.slot(), &key); got != want[key] {
			t.Fatalf("step %d: %p, want %p", i, got, want[key])
		}
		if r.IntN(10_000) == 0 {
			m.clear()
			clear(want)
		}
		if want[key] == nil {
			want[key] = &rule{}
			m.put(key, want[key])
		}
	}
}

// A memo of many keys starts anew, and has the key that was entered last.
func TestMemoStartsAnew(t *testing.T) {
	var m memo[planKey, plan]
	var s spec
	for size := range 3 * maxSpecs {
		key := planKey{from: &s, to: &s, size: size}
		m.put(key, &plan{})
		if m.get(key.slot(), &key) == nil || len(m.all) > maxSpecs {
			t.Fatalf("key %d of %d: %v", size, len(m.all), m.get(key.slot(), &key))
		}
	}
}
