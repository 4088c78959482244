package launcher

import (
	"testing"
	"time"
)

// The time for which gorun was stopped counts for no limit.
func TestLimitStopsTheClock(t *testing.T) {
	now := time.Now()
	l := limit{left: time.Second, last: now}
	for i, d := range []time.Duration{clockInterval, time.Hour, time.Second - 2*clockInterval, time.Minute, clockInterval} {
		now = now.Add(d)
		if over := l.over(now); over != (i == 4) {
			t.Errorf("look %d: %v is left", i, l.left)
		}
	}
}
