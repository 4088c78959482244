package launcher

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
	"strings"
	"syscall"
)

// The exit statuses of shells for a program that cannot be run.
const (
	statusNotExecutable = 126
	statusNotFound      = 127
)

// A statusError ends gorun with a status of its own.
type statusError struct {
	status int
	err    error // nil if all has been said
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

// named is what a command line may name in place of what it does.
const named = "name an executable, the folder of a Go main package, or .go files"

// locate says what a.program is: an executable, whose path it returns, or Go
// source (a folder, .go files or an import path), for which the path is "" and
// a.built is set.
func (a *appOptions) locate() (path string, err error) {
	name := a.program
	if a.sources != nil {
		a.built = true
		return "", checkSources(a.sources)
	}
	if !strings.Contains(name, "/") && name != "." && name != ".." {
		return a.search(name)
	}
	full := name
	info, err := os.Stat(full)
	if errors.Is(err, fs.ErrNotExist) && a.dir != "" && !filepath.IsAbs(name) {
		full = filepath.Join(a.dir, name)
		info, err = os.Stat(full)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		switch p := packageNamed(name); p {
		case "main":
			a.built = true
			return "", nil
		case "":
			return "", notFound(fmt.Errorf("%s: no such program; %s", name, meant(name)))
		default:
			return "", notExecutable("%s is package %s, not a program; %s", name, p, named)
		}
	case err != nil:
		return "", notExecutable("%s: %v", name, errors.Unwrap(err))
	case info.IsDir() && full != name:
		return "", notExecutable("%s: packages are built from here, not from --wdir; did you mean %s?", name, typed(full))
	case info.IsDir():
		a.built = true
		return "", checkFolder(name)
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return "", notExecutable("%s is not executable; chmod +x it, or name the folder of a Go package", name)
	}
	return absolute(full)
}

// search finds a bare name in PATH, as a shell does.
func (a *appOptions) search(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return absolute(path)
	}
	hint := named
	if command, ok := nearCommand(name); ok {
		hint = fmt.Sprintf("did you mean gorun %s?", command)
	}
	if info, err := os.Stat(name); err == nil && (info.IsDir() && checkFolder(name) == nil || info.Mode().IsRegular() && info.Mode()&0o111 != 0) {
		hint = fmt.Sprintf("did you mean %s?", typed(name))
	}
	if errors.Is(err, fs.ErrPermission) {
		return "", notExecutable("%s: not executable; %s", name, hint)
	}
	return "", notFound(fmt.Errorf("%s: no such program in PATH; %s", cmp.Or(name, `""`), hint))
}

// absolute is filepath.Abs, which fails only for want of a current folder.
func absolute(path string) (string, error) {
	full, err := filepath.Abs(path)
	if err != nil {
		err = fmt.Errorf("%s: the current folder is gone; change to another", path)
	}
	return full, err
}

func notFound(err error) error { return &statusError{statusNotFound, err} }

func notExecutable(format string, args ...any) error {
	return &statusError{statusNotExecutable, fmt.Errorf(format, args...)}
}

// meant says what a path that does not exist may be meant to be.
func meant(path string) string {
	dir, base := filepath.Split(path)
	entries, _ := os.ReadDir(cmp.Or(dir, "."))
	for _, e := range entries {
		if d := edits(base, e.Name()); 0 < d && d <= len(base)/4 { // 0: a link to nothing
			return fmt.Sprintf("did you mean %s%s?", dir, e.Name())
		}
	}
	return named
}

// typed is a path as it is not taken for a name in PATH or for an import path.
func typed(path string) string {
	if filepath.IsAbs(path) || path == "." || path == ".." || strings.HasPrefix(path, "./") || strings.HasPrefix(path, "../") {
		return path
	}
	return "./" + path
}

// checkSources refuses .go files that are not of a program.
func checkSources(files []string) error {
	for _, f := range files {
		if _, err := os.Stat(f); err != nil {
			return notFound(fmt.Errorf("%s: no such file; %s", f, meant(f)))
		}
		if p := packageOf(f); p != "main" && p != "" {
			return notExecutable("%s is of package %s, not of a program; give files of a main package", f, p)
		}
	}
	return nil
}

// checkFolder refuses a folder that is no main package, whatever the tags of a build.
// What else keeps it from being built, go says.
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
			return notExecutable("%s %s; did you mean %s?", dir, what, typed(filepath.Dir(f)))
		}
	}
	return notExecutable("%s %s; %s", dir, what, named)
}

// packageOf returns the package that a .go file is of, "" if it does not say.
func packageOf(file string) string {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly)
	if err != nil {
		return ""
	}
	return f.Name.Name
}

// packageNamed returns the name of the package that the go command knows by an import
// path, "" if there is none.
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
