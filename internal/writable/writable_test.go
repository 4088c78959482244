package writable

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCheck(t *testing.T) {
	folder := t.TempDir()
	name := func(s string) string { return filepath.Join(folder, s) }
	if err := os.WriteFile(name("there"), []byte("kept"), 0o666); err != nil {
		t.Fatal(err)
	}
	for s, ok := range map[string]bool{"there": true, "new": true, "no/folder": false, ".": false} {
		if err := Check(name(s)); (err == nil) != ok {
			t.Errorf("%s: %v", s, err)
		}
	}
	if text, err := os.ReadFile(name("there")); string(text) != "kept" {
		t.Errorf("the file that was there has %q, %v", text, err)
	}
	if _, err := os.Lstat(name("new")); err == nil {
		t.Error("the file that was not there is left")
	}
}
