package launcher

import (
	"errors"
	"fmt"
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

// locate says what a.program is: an executable, whose path it returns, or Go
// source (a folder, .go files or an import path), for which the path is "" and
// a.built is set.
func (a *appOptions) locate() (path string, err error) {
	name := a.program
	if a.sources != nil {
		for _, s := range a.sources {
			if _, err := os.Stat(s); err != nil {
				return "", notFound(fmt.Errorf("%s: no such file", s))
			}
		}
		a.built = true
		return "", nil
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
		if importPath(name) {
			a.built = true
			return "", nil
		}
		return "", notFound(fmt.Errorf("%s: no such program", name))
	case err != nil:
		return "", &statusError{statusNotExecutable, fmt.Errorf("%s: %v", name, errors.Unwrap(err))}
	case info.IsDir():
		if full != name || !hasGoFiles(full) {
			return "", &statusError{statusNotExecutable, fmt.Errorf("%s is a folder without Go files; name a program or a Go main package", name)}
		}
		a.built = true
		return "", nil
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return "", &statusError{statusNotExecutable, fmt.Errorf("%s is not executable; chmod +x it, or name the folder of a Go package", name)}
	}
	full, err = filepath.Abs(full)
	return full, err
}

// search finds a bare name in PATH, as a shell does.
func (a *appOptions) search(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return filepath.Abs(path)
	}
	hint := ""
	if info, err := os.Stat(name); err == nil && (info.IsDir() || info.Mode()&0o111 != 0) {
		hint = fmt.Sprintf("; did you mean ./%s?", name)
	}
	if command, ok := nearCommand(name); ok && hint == "" {
		hint = fmt.Sprintf("; did you mean gorun %s?", command)
	}
	if errors.Is(err, fs.ErrPermission) {
		return "", &statusError{statusNotExecutable, fmt.Errorf("%s: not executable%s", name, hint)}
	}
	return "", notFound(fmt.Errorf("%s: no such program in PATH%s", name, hint))
}

func notFound(err error) error { return &statusError{statusNotFound, err} }

// hasGoFiles reports whether dir holds Go source.
func hasGoFiles(dir string) bool {
	files, _ := filepath.Glob(filepath.Join(dir, "*.go"))
	return len(files) > 0
}

// importPath reports whether the go command knows a package of that name.
func importPath(name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "/") {
		return false
	}
	out, err := exec.Command("go", "list", "-find", "-f", "{{.Name}}", "--", name).Output()
	return err == nil && strings.TrimSpace(string(out)) == "main"
}
