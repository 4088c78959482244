package launcher

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
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

// goRun returns the command that builds a and prints the built file's name, and
// the folder to run it in. Building is go run's: the result lies in Go's build
// cache, so that starting again without a change links nothing and a launcher
// that is killed leaves nothing behind. A package of another module than the
// current folder's is built inside its own.
func (a *appOptions) goRun() (argv []string, dir string) {
	argv = []string{"go", "run", "-exec", "echo"}
	switch {
	case a.sources != nil:
		return append(argv, a.sources...), ""
	case !isFolder(a.program):
		return append(argv, "--", a.program), ""
	case moduleOf(a.program) == moduleOf("."):
		if path := a.program; filepath.IsAbs(path) || path == "." || strings.HasPrefix(path, "./") || strings.HasPrefix(path, "..") {
			return append(argv, path), ""
		}
		return append(argv, "./"+a.program), ""
	}
	return append(argv, "."), a.program
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

// build compiles a and returns the executable's path. What the go command says
// goes to stderr as it is.
func (a *appOptions) build(stderr io.Writer) (string, error) {
	if _, err := exec.LookPath("go"); err != nil {
		return "", fmt.Errorf("%s is Go source, and the go command, to build it, is not in PATH; install Go or name an executable", a.program)
	}
	// A binary that had to be linked is run from a folder that go run removes; the second time it is in the cache.
	for range 2 {
		path, err := a.runGo(stderr)
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: the go command keeps no executables in its cache; install Go 1.24 or later, or build it and name the executable", a.program)
}

// runGo runs a.goRun and returns what it prints. If this process is killed the go
// command is interrupted, and removes its own temporary folder.
func (a *appOptions) runGo(stderr io.Writer) (string, error) {
	goruntime.LockOSThread() // a parent-death signal follows the thread that forked
	defer goruntime.UnlockOSThread()
	argv, dir := a.goRun()
	var out bytes.Buffer
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGINT}
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) { // go has said why
			return "", &statusError{status: 1}
		}
		return "", fmt.Errorf("%s: %v", quote(argv), err)
	}
	return strings.TrimRight(out.String(), "\n"), nil
}
