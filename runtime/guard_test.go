package runtime

import (
	"strings"
	"testing"
	"time"
)

func TestHangLimit(t *testing.T) {
	for _, c := range []struct {
		text      string
		gorun     bool
		want      time.Duration
		given, ok bool
	}{
		{"", true, 5 * time.Minute, false, true}, {"", false, 0, false, true}, {"0", true, 0, true, true}, {"0s", true, 0, true, true},
		{"90s", false, 90 * time.Second, true, true}, {"-1m", true, 0, false, false}, {"15", true, 0, false, false},
	} {
		got, given, err := hangLimit(c.text, c.gorun)
		if got != c.want || given != c.given || (err == nil) != c.ok ||
			err != nil && !strings.Contains(err.Error(), `GORUN_HANG_TIMEOUT="`+c.text+`"`) {
			t.Errorf("%q: got %v, %v, %v", c.text, got, given, err)
		}
	}
}
