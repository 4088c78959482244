package hosts

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadFileRefusesWhatIsTooLarge: ReadFile reads neither a device without an end nor a file of
// 40 GiB into memory.
func TestReadFileRefusesWhatIsTooLarge(t *testing.T) {
	dir := t.TempDir()
	sparse, largest := filepath.Join(dir, "sparse"), filepath.Join(dir, "largest")
	for name, size := range map[string]int64{sparse: 40 << 30, largest: maxFile} {
		if err := os.WriteFile(name, nil, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(name, size); err != nil {
			t.Skip(err) // a file system without files of this size
		}
	}
	for _, name := range []string{sparse, "/dev/zero"} {
		text, err := ReadFile(name)
		var path *fs.PathError
		if text != nil || !errors.As(err, &path) || path.Path != name || !strings.Contains(err.Error(), "more than 16 MiB") {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
	}
	if text, err := ReadFile(largest); len(text) != maxFile || err != nil {
		t.Errorf("%d bytes, %v, want %d", len(text), err, maxFile)
	}
	if _, err := ReadFile(dir); err == nil {
		t.Error("a folder was read")
	}
}
