package criteo

// A Vocabulary turns the codes of the categories into rows of tables. Row 0 is
// for missing values; a code's row is its hash, so two codes may share one.
type Vocabulary struct {
	Rows [Categorical]int // of each table
}

// NewVocabulary chooses the tables' sizes for the codes of some rows: as many
// rows as there are distinct codes and one more, at most limit.
func NewVocabulary(d *Data, limit int) *Vocabulary {
	v := &Vocabulary{}
	for f := range v.Rows {
		seen := map[int64]bool{}
		for i := f; i < len(d.Codes); i += Categorical {
			if d.Codes[i] != Missing {
				seen[d.Codes[i]] = true
			}
		}
		v.Rows[f] = min(len(seen)+1, limit)
	}
	return v
}

// Row returns the row of a code in the table of category f.
func (v *Vocabulary) Row(f int, code int64) int64 {
	if code == Missing || v.Rows[f] < 2 {
		return 0
	}
	return 1 + int64(mix(uint64(code))%uint64(v.Rows[f]-1))
}
