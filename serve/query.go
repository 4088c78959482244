package serve

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"sync"
)

// A Mode says how the rows of a bag become one.
type Mode uint8

// The modes, in the order of package embedding.
const (
	Mean Mode = iota
	Sum
	Max
)

// Bag sets dst, of Dim numbers, to the mean, sum or maximum of the rows of keys, added up
// in their order in float32. The row of an unknown key is zeros, and without keys dst is
// zeros. found is how many of the keys the table has. Bag panics for a dst of another length and for
// another mode.
func (t *Table) Bag(dst []float32, mode Mode, keys ...int64) (found int) {
	switch {
	case len(dst) != t.dim:
		panic(fmt.Sprintf("serve: Table.Bag: dst has %d numbers and a row %d; give a dst of Dim numbers", len(dst), t.dim))
	case mode > Max:
		panic(fmt.Sprintf("serve: Table.Bag: there is no mode %d; give Mean, Sum or Max", mode))
	}
	clear(dst)
	zero := make([]float32, 0, 64)
	for i, key := range keys {
		row, ok := t.Row(key)
		if ok {
			found++
		} else {
			if len(zero) < t.dim {
				zero = make([]float32, t.dim)
			}
			row = zero
		}
		switch {
		case mode != Max:
			for j, v := range row {
				dst[j] += v
			}
		case i == 0:
			copy(dst, row)
		default:
			for j, v := range row {
				dst[j] = max(dst[j], v)
			}
		}
	}
	if mode == Mean && len(keys) > 0 {
		for j := range dst {
			dst[j] /= float32(len(keys))
		}
	}
	return found
}

// A Match is a key and the inner product of its row with a query.
type Match struct {
	Key   int64
	Score float32
}

// before reports whether a comes before b: by score, then by key.
func (a Match) before(b Match) int {
	if a.Score != b.Score {
		return cmp.Compare(b.Score, a.Score)
	}
	return cmp.Compare(a.Key, b.Key)
}

// TopK returns the k keys whose rows have the largest inner products with query, the
// largest first, of equal ones the least key first. It reads all rows, on all processors,
// so it is exact. A query of another length than Dim has no matches. NaN is never one.
func (t *Table) TopK(query []float32, k int) []Match {
	if len(query) != t.dim || k < 1 {
		return nil
	}
	var mu sync.Mutex
	var best []Match
	var all sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for _, l := range t.layers {
		n := int(l.h.Rows)
		for w := range workers {
			lo, hi := n*w/workers, n*(w+1)/workers
			if lo == hi {
				continue
			}
			all.Go(func() {
				its := l.topK(query, k, lo, hi)
				mu.Lock()
				defer mu.Unlock()
				best = append(best, its...)
			})
		}
	}
	all.Wait()
	slices.SortFunc(best, Match.before)
	return best[:min(k, len(best))]
}

// topK returns the best of the rows lo to hi, in no order.
func (l *layer) topK(query []float32, k, lo, hi int) (best []Match) {
	keep := func() {
		slices.SortFunc(best, Match.before)
		best = best[:min(k, len(best))]
	}
	for at := lo; at < hi; at++ {
		score := dot(query, l.row(at))
		if score != score || len(best) >= k && score < best[k-1].Score || l.isHidden(at) {
			continue
		}
		best = append(best, Match{l.key(at), score})
		if n := len(best); n == k || n >= 2*k+64 {
			keep()
		}
	}
	keep()
	return best
}

// dot returns the inner product in float32, in eight sums.
func dot(a, b []float32) float32 {
	var s [8]float32
	for len(a) >= 8 && len(b) >= 8 {
		x, y := (*[8]float32)(a), (*[8]float32)(b)
		for j := range s {
			s[j] += x[j] * y[j]
		}
		a, b = a[8:], b[8:]
	}
	for j, v := range a {
		s[j] += v * b[j]
	}
	return (s[0] + s[4]) + (s[1] + s[5]) + ((s[2] + s[6]) + (s[3] + s[7]))
}
