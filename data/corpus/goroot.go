package corpus

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// goroot returns the directory of a Go distribution with its source: the output of
// `go env GOROOT`, else the environment variable, else the directory of the go command
// in PATH, else the usual places.
func goroot() (string, error) {
	candidates := []string{askGo(), os.Getenv("GOROOT")}
	if command, err := exec.LookPath("go"); err == nil {
		if command, err = filepath.EvalSymlinks(command); err == nil {
			candidates = append(candidates, filepath.Dir(filepath.Dir(command)))
		}
	}
	return withSource(append(candidates, "/usr/local/go", "/usr/lib/go", "/usr/lib/golang", "/opt/homebrew/opt/go/libexec"))
}

// withSource returns the first candidate that has the standard library's source.
func withSource(candidates []string) (string, error) {
	for _, root := range candidates {
		if root == "" {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, "src", "fmt", "print.go")); err == nil {
			return root, nil
		}
	}
	return "", errors.New("no source of the Go standard library found (go env GOROOT); install Go from https://go.dev/dl, " +
		"or name text of your own with -data PATH")
}

// askGo returns what `go env GOROOT` prints, "" if there is no go command or it
// does not answer. It keeps the command from fetching another toolchain.
func askGo() string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ask := exec.CommandContext(ctx, "go", "env", "GOROOT")
	ask.Env = append(os.Environ(), "GOTOOLCHAIN=local")
	ask.WaitDelay = time.Second
	answer, err := ask.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(answer))
}
