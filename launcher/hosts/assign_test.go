package hosts

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// letters returns the host of each rank as a letter: a for the first of the list.
func letters(places []int) string {
	var b strings.Builder
	for _, p := range places {
		b.WriteByte('a' + byte(p))
	}
	return b.String()
}

func TestAssign(t *testing.T) {
	for _, c := range []struct {
		file string
		np   int
		o    Options
		want string
	}{
		{"a slots=2\nb slots=3", 5, Options{}, "aabbb"},
		{"a slots=2\nb slots=3", 3, Options{}, "aab"},
		{"a slots=2\nb slots=3", 5, Options{By: ByNode}, "ababb"},
		{"a slots=0\nb slots=2", 2, Options{}, "bb"},
		{"a slots=0\nb slots=2", 2, Options{By: ByNode}, "bb"},
		{"a slots=0\nb slots=2", 3, Options{Oversubscribe: true}, "bbb"},
		{"a:1\nb:1\na:1", 3, Options{}, "aba"},
		{"a:1\nb:1\na:1", 3, Options{By: ByNode}, "aba"},
		{"a\nb", 2, Options{}, "ab"},
		{"a\nb", 8, Options{Cores: 4}, "aaaabbbb"},
		{"a slots=1 max_slots=2\nb slots=1", 6, Options{Oversubscribe: true}, "aabbbb"},
		{"a slots=1 max_slots=2\nb slots=1", 6, Options{Oversubscribe: true, By: ByNode}, "ababbb"},
		{"a slots=2\nb slots=1", 8, Options{Oversubscribe: true}, "aaaaabbb"},
		{"a max_slots=2\nb slots=1", 4, Options{Cores: 8}, "4 ranks for 3 slots (a 2, b 1)"},
		{"a slots=0", 1, Options{}, "1 rank for 0 slots (a 0)"},
		{"a\nb", 3, Options{}, "3 ranks for 2 slots (a 1 by default, b 1 by default); lower -np, give more slots, or say --oversubscribe"},
		{"a slots=1 max_slots=2\nb slots=1 max_slots=1", 4, Options{Oversubscribe: true}, "4 ranks, but max_slots allows 3"},
		{"a slots=0\nb slots=0", 1, Options{Oversubscribe: true}, "allows 0"},
		{"a", 0, Options{}, "0 ranks; give 1 or more"},
	} {
		list, _, err := Parse("f", []byte(c.file), Auto)
		if err != nil {
			t.Fatal(err)
		}
		places, err := Assign(list, c.np, c.o)
		got := letters(places)
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%q, %d ranks, %+v: got %s, want %s", c.file, c.np, c.o, got, c.want)
		}
	}
	if _, err := Assign(nil, 1, Options{}); err == nil {
		t.Error("no hosts, and no error")
	}
}

// TestAssignLaws checks the laws of every assignment, on many small lists.
func TestAssignLaws(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		list := make([]Host, 1+r.IntN(4))
		for i := range list {
			list[i] = Host{Name: string('a' + rune(r.IntN(4))), Slots: r.IntN(4), SlotsGiven: r.IntN(4) > 0}
			if r.IntN(2) == 0 {
				list[i].MaxSlots = max(1, list[i].Slots+r.IntN(3))
			}
			if !list[i].SlotsGiven {
				list[i].Slots = 0
			}
		}
		np := 1 + r.IntN(12)
		o := Options{By: MapBy(r.IntN(2)), Oversubscribe: r.IntN(2) == 0, Cores: r.IntN(3)}
		places, err := Assign(list, np, o)
		room, most, unlimited := map[string]int{}, map[string]int{}, map[string]bool{}
		total, limit, open := 0, 0, false
		for _, h := range list {
			n := h.slots(max(o.Cores, 1))
			room[h.Name] += n
			total += n
			most[h.Name] += h.MaxSlots
			if h.MaxSlots == 0 && n > 0 {
				unlimited[h.Name], open = true, true
			}
			if n > 0 {
				limit += h.MaxSlots
			}
		}
		fits := np <= total || o.Oversubscribe && (open || np <= limit)
		if fits != (err == nil) {
			t.Fatalf("%v, %d ranks, %+v: error %v, want success %v", list, np, o, err, fits)
		}
		if err != nil {
			continue
		}
		used := map[string]int{}
		for _, p := range places {
			used[list[p].Name]++
		}
		for name, n := range used {
			if np <= total && n > room[name] || !unlimited[name] && n > most[name] && n > room[name] {
				t.Fatalf("%v, %d ranks, %+v: %d ranks on %s", list, np, o, n, name)
			}
		}
	}
}
