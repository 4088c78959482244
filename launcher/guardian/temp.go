//go:build linux

package guardian

import (
	"fmt"
	"os"
)

// TempFolder returns the name for a folder in the one that variable names, or else in
// TMPDIR. The guardian makes it, so that it is removed whoever is killed.
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

// FreeName returns the name of a folder that could be made in parent.
func FreeName(parent, pattern string) (string, error) {
	path, err := os.MkdirTemp(parent, pattern)
	if err != nil {
		return "", err
	}
	return path, os.Remove(path)
}
