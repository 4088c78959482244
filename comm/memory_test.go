package comm

import (
	"math"
	"testing"
)

func TestMachineMemory(t *testing.T) {
	for text, want := range map[string]int{
		"MemTotal:  9 kB\nMemFree:  5 kB\nSwapTotal:       4 kB\nSwapFree: 4 kB\n": 13 << 10,
		"MemTotal:  9 kB\n": 9 << 10,
		"":                  math.MaxInt,
	} {
		if got := machineMemory([]byte(text)); got != want {
			t.Errorf("of %q the memory is %d, want %d", text, got, want)
		}
	}
}
