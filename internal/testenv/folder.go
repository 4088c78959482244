package testenv

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Folder returns a temporary folder with the given files, by their paths in it.
func Folder(t testing.TB, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for file, text := range files {
		file = filepath.Join(folder, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o777), os.WriteFile(file, []byte(text), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}
