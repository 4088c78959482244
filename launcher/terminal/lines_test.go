//go:build linux

package terminal

import "testing"

func TestFit(t *testing.T) {
	for _, c := range []struct {
		in      string
		columns int
		want    string
	}{
		{"0123456789", 11, "0123456789"},
		{"0123456789", 10, "012345678"},
		{"äöü€x", 4, "äöü"},
		{"\x1b[31mred\x1b[0m and more", 6, "\x1b[31mred\x1b[0m a\x1b[m"},
		{"up\x1b[A\x1b[2Jdown\x1b", 80, "updown"},
		{"tab\tbell\a", 80, "tabbell"},
		{"x", 1, ""},
		{"x", 0, ""},
		{"\x1b[", 80, ""},
		{"\x1b[\nm", 12, "m"},
		{"\x1b[3\x1b[31mred", 12, "\x1b[31mred\x1b[m"},
		{"\x1b[äx", 12, "äx"},
	} {
		if got := string(Fit(nil, []byte(c.in), c.columns)); got != c.want {
			t.Errorf("fit(%q, %d) = %q, want %q", c.in, c.columns, got, c.want)
		}
	}
}
