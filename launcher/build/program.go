package build

import (
	"cmp"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"syscall"

	"github.com/gorun-spmd/gorun/launcher/exit"
	"github.com/gorun-spmd/gorun/launcher/options"
)

// named is the advice of errors about a program that gorun cannot start.
const named = "name an executable, the folder of a Go main package, or .go files"

// locate finds a.Program. It returns the path of an executable. For Go source (a folder,
// .go files or an import path) it returns "" and sets a.Built.
func locate(a *options.App) (path string, err error) {
	name := a.Program
	if a.Sources != nil {
		a.Built = true
		return "", checkSources(a.Sources)
	}
	if !strings.Contains(name, "/") && name != "." && name != ".." {
		return search(name)
	}
	full := name
	info, err := os.Stat(full)
	if errors.Is(err, fs.ErrNotExist) && a.Dir != "" && !filepath.IsAbs(name) {
		full = filepath.Join(a.Dir, name)
		info, err = os.Stat(full)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		switch p := packageNamed(name); p {
		case "main":
			a.Built = true
			return "", nil
		case "":
			return "", exit.Missing(fmt.Errorf("%s: no such program; %s", name, meant(name)))
		default:
			return "", exit.Unusable("%s is package %s, not a program; %s", name, p, named)
		}
	case err != nil:
		return "", exit.Unusable("%s: %v", name, errors.Unwrap(err))
	case info.IsDir() && full != name:
		return "", exit.Unusable("%s: packages are built from here, not from --wdir; did you mean %s?", name, typed(full))
	case info.IsDir():
		a.Built = true
		return "", checkFolder(name)
	case !executable(info):
		return "", exit.Unusable("%s is not executable; chmod +x it, or name the folder of a Go package", name)
	}
	return options.Absolute(full)
}

// executable reports whether a file may be executed. Windows has no such permission.
func executable(info fs.FileInfo) bool {
	return info.Mode().IsRegular() && (info.Mode()&0o111 != 0 || goruntime.GOOS == "windows")
}

// search finds a bare name in PATH, as a shell does.
func search(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return options.Absolute(path)
	}
	hint := named
	if command, ok := options.NearCommand(name); ok {
		hint = fmt.Sprintf("did you mean gorun %s?", command)
	}
	if info, err := os.Stat(name); err == nil &&
		(info.IsDir() && checkFolder(name) == nil || executable(info)) {
		hint = fmt.Sprintf("did you mean %s?", typed(name))
	}
	if errors.Is(err, fs.ErrPermission) {
		return "", exit.Unusable("%s: not executable; %s", name, hint)
	}
	return "", exit.Missing(fmt.Errorf("%s: no such program in PATH; %s", cmp.Or(name, `""`), hint))
}

// meant returns advice about a path that does not exist: a similar name, if there is one.
func meant(path string) string {
	dir, base := filepath.Split(path)
	entries, _ := os.ReadDir(cmp.Or(dir, "."))
	for _, e := range entries {
		if d := options.Edits(base, e.Name()); 0 < d && d <= len(base)/4 { // 0: a link to nothing
			return fmt.Sprintf("did you mean %s%s?", dir, e.Name())
		}
	}
	return named
}

// typed returns a path in a form that is not taken for a name in PATH or an import path.
func typed(path string) string {
	if filepath.IsAbs(path) || path == "." || path == ".." || strings.HasPrefix(path, "./") || strings.HasPrefix(path, "../") {
		return path
	}
	return "./" + path
}

// checkSources refuses .go files that do not belong to a main package.
func checkSources(files []string) error {
	for _, f := range files {
		if _, err := os.Stat(f); err != nil {
			return exit.Missing(fmt.Errorf("%s: no such file; %s", f, meant(f)))
		}
		if p := packageOf(f); p != "main" && p != "" {
			return exit.Unusable("%s is of package %s, not of a program; give files of a main package", f, p)
		}
	}
	return nil
}

// checkFolder refuses a folder that is no main package under any build tags.
// The go command reports all other reasons why it cannot be built.
func checkFolder(dir string) error {
	files, _ := filepath.Glob(filepath.Join(dir, "*.go"))
	what := "is a folder without Go files"
	for i, f := range files {
		switch p := packageOf(f); {
		case strings.HasSuffix(f, "_test.go"):
			if i == 0 {
				what = "has tests, but no program"
			}
		case p == "main" || p == "":
			return nil
		default:
			what = fmt.Sprintf("is package %s, not a program", p)
		}
	}
	below, _ := filepath.Glob(filepath.Join(dir, "*", "*.go"))
	for _, f := range below {
		if !strings.HasSuffix(f, "_test.go") && packageOf(f) == "main" {
			return exit.Unusable("%s %s; did you mean %s?", dir, what, typed(filepath.Dir(f)))
		}
	}
	return exit.Unusable("%s %s; %s", dir, what, named)
}

// packageOf returns the name in a .go file's package clause, "" if it has none.
func packageOf(file string) string {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly)
	if err != nil {
		return ""
	}
	return f.Name.Name
}

// packageNamed returns the name of the package with an import path, "" if the go command knows
// none.
func packageNamed(path string) string {
	if strings.HasPrefix(path, ".") || strings.HasPrefix(path, "/") {
		return ""
	}
	out, err := exec.Command("go", "list", "-find", "-f", "{{.Name}}", "--", path).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// Locate returns the files to execute, in the order of o.Apps; "" for a program that is to be
// built.
func Locate(o *options.Options) (paths []string, err error) {
	paths = make([]string, len(o.Apps))
	for i := range o.Apps {
		if paths[i], err = locate(&o.Apps[i]); err != nil {
			return nil, err
		}
	}
	return paths, nil
}
