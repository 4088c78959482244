package dtensor

import (
	"fmt"
	"testing"
)

// Every rank makes each pass once, waits for nothing that another one waits to send, and
// sends what goes one way in the order of the parts.
func TestSchedules(t *testing.T) {
	for _, c := range [][3]int{{1, 1, 3}, {2, 1, 1}, {2, 1, 5}, {4, 1, 2}, {4, 1, 9}, {1, 3, 2}, {2, 2, 2}, {2, 2, 8}, {3, 2, 6}, {4, 3, 12}} {
		meshes, stages, parts := c[0], c[0]*c[1], c[2]
		lists := make([][]action, meshes)
		for m := range lists {
			lists[m] = schedule(m, meshes, stages, parts)
			if len(lists[m]) != 2*c[1]*parts {
				t.Fatalf("%v: mesh %d makes %d passes: %v", c, m, len(lists[m]), lists[m])
			}
		}
		done, next := map[action]bool{}, map[string]int{}
		for progress := true; progress; {
			progress = false
			for m := range lists {
				for len(lists[m]) > 0 {
					a := lists[m][0]
					ready := a.stage == 0 || done[action{a.stage - 1, a.part, false}]
					if a.back {
						ready = done[action{a.stage, a.part, false}] && (a.stage == stages-1 || done[action{a.stage + 1, a.part, true}])
					}
					if !ready {
						break
					}
					way := fmt.Sprint(a.stage, a.back)
					if a.stage%meshes != m || done[a] || a.part != next[way] {
						t.Fatalf("%v: mesh %d: %+v", c, m, a)
					}
					next[way]++
					done[a], lists[m], progress = true, lists[m][1:], true
				}
			}
		}
		if len(done) != 2*stages*parts {
			t.Fatalf("%v: stuck with %v", c, lists)
		}
	}
	// 1F1B has as many parts in memory as there are stages from a rank's own to the last.
	most := 0
	open := 0
	for _, a := range schedule(1, 4, 4, 16) {
		if open++; a.back {
			open -= 2
		}
		most = max(most, open)
	}
	if most != 3 {
		t.Errorf("stage 1 of 4 has %d parts open at once, want 3", most)
	}
}
