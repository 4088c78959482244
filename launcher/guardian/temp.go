//go:build linux

package guardian

import (
	"fmt"
	"os"
)

// TempFolder returns a name for a temporary folder inside the folder that the environment
// variable names, or else inside TMPDIR. The guardian makes the folder, so that it is removed
// whichever process is killed.
func TempFolder(variable, pattern string) (string, error) {
	parent := os.Getenv(variable)
	if parent == "" {
		variable = "TMPDIR"
	}
	path, err := FreeName(parent, pattern)
	if err != nil {
		return "", fmt.Errorf("no temporary folder: %w; let %s name a folder that can be written", err, variable)
	}
	return path, nil
}

// FreeName returns the path of a folder in parent that does not exist and can be made.
func FreeName(parent, pattern string) (string, error) {
	path, err := os.MkdirTemp(parent, pattern)
	if err != nil {
		return "", err
	}
	return path, os.Remove(path)
}
