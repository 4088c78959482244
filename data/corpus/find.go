package corpus

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A file is a candidate for the corpus.
type file struct {
	order int    // position in the corpus: by path given, then by name
	name  string // see Document.Name
	path  string // where to open it; what errors name
	real  string // path without symbolic links: the same for the same file
	bytes int64  // its size when it was found
	named bool   // the user named this very file, so it must be text
	text  []byte // once read
}

// rank returns a fixed pseudo-random number for the file's name, which decides which files
// are kept if not all can be, and which are held out. The name, that of Document, does not
// depend on where on a machine the file is.
func (f *file) rank() [sha256.Size]byte { return sha256.Sum256([]byte(f.name)) }

// find lists the files below paths, or those of the standard library if there
// are none, and says in words what they are.
func find(paths []string) (files []file, source string, err error) {
	if len(paths) == 0 {
		root, err := goroot()
		if err != nil {
			return nil, "", err
		}
		files, err = walk(filepath.Join(root, "src"), isLibrarySource)
		return files, "the Go standard library", err
	}
	seen := map[string]bool{}
	for _, path := range paths {
		below, err := walk(path, func(fs.DirEntry, string) bool { return true })
		if err != nil {
			return nil, "", err
		}
		if len(below) == 0 {
			return nil, "", fmt.Errorf("%s: no files in this directory; name one that has text", path)
		}
		for _, f := range below {
			if !seen[f.real] {
				seen[f.real] = true
				f.order = len(files)
				files = append(files, f)
			}
		}
	}
	return files, strings.Join(paths, " "), nil
}

// walk lists path itself if it is a file, else the regular files below it that
// want accepts, in the order of their names. Hidden files and directories are
// left out, and symbolic links other than path itself.
func walk(path string, want func(entry fs.DirEntry, path string) bool) ([]file, error) {
	if path == "" {
		return nil, errors.New("an empty path; name files or directories of text")
	}
	root, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, pathError(path, err)
	}
	if root, err = filepath.Abs(root); err != nil {
		return nil, pathError(path, err)
	}
	info, err := os.Stat(root)
	if err != nil {
		return nil, pathError(path, err)
	}
	if !info.IsDir() {
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s: neither a file nor a directory; name files or directories of text", path)
		}
		return []file{{name: filepath.Base(path), path: path, real: root, bytes: info.Size(), named: true}}, nil
	}
	var files []file
	err = filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return pathError(at, err)
		case at != root && strings.HasPrefix(entry.Name(), "."), !want(entry, at):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !entry.Type().IsRegular():
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return pathError(at, err)
		}
		name, err := filepath.Rel(root, at)
		if err != nil {
			return pathError(at, err)
		}
		files = append(files, file{order: len(files), name: filepath.ToSlash(name), path: at, real: at, bytes: info.Size()})
		return nil
	})
	return files, err
}

// isLibrarySource accepts the directories of packages that programs import and
// the Go files in them that people wrote: tables that a program generated say
// little about the language and would fill much of the text.
func isLibrarySource(entry fs.DirEntry, path string) bool {
	if entry.IsDir() {
		switch entry.Name() {
		case "cmd", "testdata", "vendor":
			return false
		}
		return true
	}
	return strings.HasSuffix(path, ".go") && !isGenerated(path)
}

// generated is the line that marks a generated file (go help generate).
var generated = regexp.MustCompile(`^// Code generated .* DO NOT EDIT\.$`)

// isGenerated looks for the mark above the package clause, where it must be. A
// file that cannot be opened is not generated; reading it will say why.
func isGenerated(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, 16<<10))
	for lines.Scan() {
		if generated.Match(lines.Bytes()) {
			return true
		}
		if bytes.HasPrefix(lines.Bytes(), []byte("package ")) {
			return false
		}
	}
	return false
}

// pathError says what is wrong with path and what to do about it.
func pathError(path string, err error) error {
	var cause *fs.PathError
	if errors.As(err, &cause) {
		err = cause.Err
	}
	remedy := "name files or directories that can be read"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		remedy = "check the spelling"
	case errors.Is(err, fs.ErrPermission):
		remedy = "make it readable (chmod a+r) or leave it out"
	}
	return fmt.Errorf("%s: %w; %s", path, err, remedy)
}
