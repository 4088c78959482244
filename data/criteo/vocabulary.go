package criteo

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"slices"
)

// A Vocabulary turns the codes of the categories into rows of tables. Row 0 is for missing
// values and those that it does not know; from row 1 on each code has one, the most frequent
// first.
type Vocabulary struct {
	Rows [Categorical]int // of each table

	row    [Categorical]map[int64]int64
	shared [Categorical]bool // there are more codes than rows: those without a row share these
}

// NewVocabulary gives a row to each distinct code of the rows of a log, and to the missing
// ones; but a table has at most limit rows. Then the most frequent codes have a row each, and
// every other code has one of these by its hash.
func NewVocabulary(d *Data, limit int) *Vocabulary {
	v := &Vocabulary{}
	for f := range v.Rows {
		often := map[int64]int{}
		for i := f; i < len(d.Codes); i += Categorical {
			if d.Codes[i] != Missing {
				often[d.Codes[i]]++
			}
		}
		codes := make([]int64, 0, len(often))
		for code := range often {
			codes = append(codes, code)
		}
		slices.SortFunc(codes, func(a, b int64) int { return cmp.Or(cmp.Compare(often[b], often[a]), cmp.Compare(a, b)) })
		v.Rows[f] = min(len(codes)+1, max(limit, 1))
		v.shared[f] = len(codes) >= v.Rows[f]
		codes = codes[:v.Rows[f]-1]
		v.row[f] = make(map[int64]int64, len(codes))
		for i, code := range codes {
			v.row[f][code] = int64(i + 1)
		}
	}
	return v
}

// Row returns the row of a code in the table of category f.
func (v *Vocabulary) Row(f int, code int64) int64 {
	row, ok := v.row[f][code]
	switch {
	case ok:
		return row
	case code == Missing || !v.shared[f] || v.Rows[f] < 2:
		return 0
	}
	return 1 + int64(mix(uint64(code))%uint64(v.Rows[f]-1))
}

// Sum returns a number that differs, but by chance, between vocabularies that give a code different
// rows: tables that were trained with one are wrong with another.
func (v *Vocabulary) Sum() uint64 {
	h, b := fnv.New64a(), make([]byte, 8)
	write := func(n int64) {
		binary.LittleEndian.PutUint64(b, uint64(n))
		h.Write(b)
	}
	for f, rows := range v.Rows {
		codes := make([]int64, rows)
		for code, row := range v.row[f] {
			codes[row] = code
		}
		write(int64(rows))
		for _, code := range codes {
			write(code)
		}
		if v.shared[f] {
			write(1)
		}
	}
	return h.Sum64()
}
