package hosts

import (
	"fmt"
	"slices"
	"strings"
)

// MapBy is the order in which ranks are dealt out to hosts.
type MapBy uint8

const (
	BySlot MapBy = iota // fill a host's slots, then go to the next
	ByNode              // one rank to each host, in turn
)

// String returns the value of --map-by.
func (m MapBy) String() string {
	if m == ByNode {
		return "node"
	}
	return "slot"
}

// ParseMapBy reads the value of --map-by: slot, node, or core, which means slot.
func ParseMapBy(s string) (MapBy, error) {
	switch s {
	case "slot", "core":
		return BySlot, nil
	case "node":
		return ByNode, nil
	}
	return BySlot, fmt.Errorf("hosts: ParseMapBy: %s: ranks are dealt out by slot or node; give one of these", show(s))
}

// Options say how Assign deals ranks out.
type Options struct {
	By            MapBy
	Oversubscribe bool // more ranks than slots are allowed
	Cores         int  // slots of a host whose slots are not given; 0 means 1
}

// Assign deals np ranks out to the hosts of list and returns the host of each, by
// rank: the index in list of the host's first entry. By slot the ranks follow the entries of the list; by node they go
// around the distinct hosts. Assign refuses more ranks than slots, with the numbers,
// unless o allows them. Then the ranks above the slots go around the hosts, one each, and no
// host gets more than its MaxSlots.
func Assign(list []Host, np int, o Options) ([]int, error) {
	switch {
	case len(list) == 0:
		return nil, fmt.Errorf("hosts: Assign: no hosts for %d ranks; name some", np)
	case np < 1:
		return nil, fmt.Errorf("hosts: Assign: %d ranks; give 1 or more", np)
	}
	seats := newSeats(list, max(o.Cores, 1))
	total := 0
	for _, s := range seats {
		total += s.room
	}
	if np > total {
		if !o.Oversubscribe {
			return nil, fmt.Errorf("hosts: Assign: %s for %s; lower -np, give more slots, or say --oversubscribe",
				count(np, "rank"), describe(total, list, max(o.Cores, 1)))
		}
		if most := widen(seats, np-total); most >= 0 {
			return nil, fmt.Errorf("hosts: Assign: %d ranks, but max_slots allows %d on these hosts; lower -np or raise max_slots", np, most)
		}
	}
	order := make([]int, 0, np)
	if o.By == BySlot {
		for _, s := range seats {
			for range min(s.room, np-len(order)) {
				order = append(order, s.host)
			}
		}
	} else {
		order = inTurn(seats, order, np)
	}
	return order, nil
}

// A seat is an entry of the list with room for ranks.
type seat struct {
	host int // index of the first entry of the same host
	room int // number of ranks that it takes
	most int // limit of room; -1: none
}

// newSeats makes a seat of each entry.
func newSeats(list []Host, cores int) []seat {
	first := map[string]int{}
	seats := make([]seat, len(list))
	for i, h := range list {
		j, ok := first[h.Name]
		if !ok {
			j = i
			first[h.Name] = i
		}
		s := seat{host: j, room: h.slots(cores), most: -1}
		if h.MaxSlots > 0 {
			s.most = h.MaxSlots
		}
		seats[i] = s
	}
	return seats
}

// widen makes room for extra more ranks, one at each seat in turn. A host with 0 slots
// is not to be used and gets none. widen returns -1 if the ranks fit, else the most ranks that
// would fit.
func widen(seats []seat, extra int) int {
	for extra > 0 {
		open, least := 0, extra
		for _, s := range seats {
			if s.room > 0 && s.room != s.most {
				open++
				if s.most > 0 {
					least = min(least, s.most-s.room)
				}
			}
		}
		if open == 0 {
			most := 0
			for _, s := range seats {
				most += s.room
			}
			return most
		}
		least = min(least, extra/open) // whole rounds at once
		for i := range seats {
			s := &seats[i]
			if s.room == 0 || s.room == s.most {
				continue
			}
			n := max(least, min(1, extra))
			s.room += n
			extra -= n
		}
	}
	return -1
}

// inTurn deals np ranks to the distinct hosts of seats in turn.
func inTurn(seats []seat, order []int, np int) []int {
	room := map[int]int{}
	var around []int
	for _, s := range seats {
		if _, ok := room[s.host]; !ok {
			around = append(around, s.host)
		}
		room[s.host] += s.room
	}
	for len(order) < np {
		around = slices.DeleteFunc(around, func(h int) bool { return room[h] == 0 })
		for _, h := range around {
			if len(order) == np {
				break
			}
			order = append(order, h)
			room[h]--
		}
	}
	return order
}

// count returns a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// describe returns "5 slots (node1 2, node2 3)", with at most eight hosts.
func describe(n int, list []Host, cores int) string {
	var parts []string
	for i, h := range list {
		if i == 8 {
			parts = append(parts, fmt.Sprintf("and %d more", len(list)-i))
			break
		}
		text := fmt.Sprintf("%s %d", show(h.Name), h.slots(cores))
		if !h.SlotsGiven {
			text += " by default"
		}
		parts = append(parts, text)
	}
	return fmt.Sprintf("%s (%s)", count(n, "slot"), strings.Join(parts, ", "))
}
