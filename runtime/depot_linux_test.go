package runtime

import (
	"os"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/internal/depot"
	"github.com/gorun-spmd/gorun/internal/snapshot"
)

func TestMemoryThatIsLeft(t *testing.T) {
	for text, want := range map[string]int{
		"MemTotal:  9 kB\nMemAvailable:    1234 kB\nBuffers: 7 kB\n": 1234 << 10,
		"MemTotal:  9 kB\n": 1 << 62,
		"":                  1 << 62,
	} {
		if got := available(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	f, err := snapshot.Create()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := &rank{host: "node1", hold: hold{&depot.Local{File: f}}}
	if err := r.fits(1 << 20); err != nil {
		t.Error(err)
	}
	if err := r.fits(1 << 60); err == nil || !strings.Contains(err.Error(), "node1 has ") {
		t.Errorf("an exabyte fits: %v", err)
	}
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	if free := available(string(text)); free < 1<<20 || free > 1<<50 {
		t.Errorf("%d bytes are left here", free)
	}
}
