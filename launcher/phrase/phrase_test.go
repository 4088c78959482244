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

func TestSeconds(t *testing.T) {
	for s, want := range map[float64]string{
		0: "0 µs", 8.67e-19: "0 µs", -3e-18: "0 µs", 1e-9: "0.001 µs", 12.34e-6: "12.3 µs", 0.9996e-3: "1 ms", 12.5e-3: "12.5 ms",
		0.9996: "1 s", 12.34: "12.3 s", 123.4: "123 s",
	} {
		if got := Seconds(s); got != want {
			t.Errorf("Seconds(%g) = %q, want %q", s, got, want)
		}
	}
}
