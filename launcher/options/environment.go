package options

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/internal/job"
)

// Environment returns env with vars, which replace variables of the same name. It leaves out the
// contract of package job, because gorun may itself be a rank of a job.
func Environment(env, vars []string) []string {
	outer := job.Names()
	return slices.Concat(vars, slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return Has(vars, name) || slices.Contains(outer, name)
	}))
}

// Has reports whether env sets name.
func Has(env []string, name string) bool { return Value(env, name) != nil }

// Value returns what env sets name to, nil for nothing.
func Value(env []string, name string) *string {
	for _, kv := range env {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return &value
		}
	}
	return nil
}

// Absolute is filepath.Abs with an error for people: it fails only if the current folder is gone or hidden.
func Absolute(path string) (string, error) {
	full, err := filepath.Abs(path)
	what := "the current folder is gone"
	switch {
	case err == nil:
		return full, nil
	case !errors.Is(err, fs.ErrNotExist):
		what = fmt.Sprintf("the current folder cannot be told (%v)", err)
	}
	if path != "" {
		what = path + ": " + what
	}
	return "", errors.New(what + "; change to another")
}
