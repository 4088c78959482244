package phrase

import "testing"

func TestList(t *testing.T) {
	for want, numbers := range map[string][]int{"": nil, "3": {3}, "0-2,5": {0, 1, 2, 5}, "0,64,1,65": {0, 64, 1, 65}} {
		if got := Ranges(numbers); got != want {
			t.Errorf("Ranges(%v) = %q, want %q", numbers, got, want)
		}
	}
}

func TestQuote(t *testing.T) {
	if got, want := Quote([]string{"a", "", "b c", "it's", "$x"}), `a '' 'b c' 'it'\''s' '$x'`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
