package runtime

import (
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/internal/depot"
	"github.com/gorun-spmd/gorun/internal/snapshot"
)

func TestMemoryThatIsLeft(t *testing.T) {
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
}
