package build

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gorun-spmd/gorun/launcher/options"
)

// GoCommand returns the go command line that carries out verb ("run" or "build") with
// flags for a. A package, or .go files, of another module than the current folder's are
// built inside their own module. .go files outside any module belong to the current folder's.
func GoCommand(a *options.App, verb string, flags ...string) []string {
	dir, what := "", []string{a.Program}
	switch {
	case a.Sources != nil:
		dir, what = filepath.Dir(a.Program), a.Sources
	case isFolder(a.Program):
		dir, what = a.Program, []string{typed(a.Program)}
	}
	argv := []string{"go"}
	if own := moduleOf(dir); dir != "" && own != "" && own != moduleOf(".") {
		argv = append(argv, "-C", dir)
		what = []string{"."}
		for i, file := range a.Sources {
			if filepath.Dir(file) != dir {
				argv, what = []string{"go"}, a.Sources // the go command refuses files of several folders
				break
			}
			what = append(what[:i], filepath.Base(file))
		}
	}
	argv = append(append(argv, verb), flags...)
	return append(append(argv, "--"), what...)
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// moduleOf returns the folder of the go.mod that governs dir, "" if there is none.
func moduleOf(dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}

// KeptAs returns the file for the i-th program of a dry run, in the user's cache folder.
func KeptAs(a *options.App, i int) string {
	parent, err := os.UserCacheDir()
	if err != nil {
		parent = os.TempDir()
	}
	name := strings.TrimSuffix(filepath.Base(a.Program), ".go")
	if full, err := filepath.Abs(a.Program); err == nil && (name == "." || name == "..") {
		name = filepath.Base(full)
	}
	if i > 0 {
		name = fmt.Sprintf("%s-%d", name, i+1)
	}
	return filepath.Join(parent, "gorun", name)
}
