package corpus

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestBadInput holds that every error is one line with the path and a remedy.
func TestBadInput(t *testing.T) {
	root := tree(t, map[string]string{
		"empty.txt": "", "binary": "a\x00b", "one": "1", "blank/only.bin": "\x00", "noise": "\xff\xff\xff",
	})
	if err := os.Mkdir(filepath.Join(root, "none"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(root, "dangling")); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(root, name) }
	good := at("good.txt")
	if err := os.WriteFile(good, []byte("some text\nsome more\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		o    Options
		want []string
	}{
		{"missing", Options{Paths: []string{good, at("absent")}}, []string{at("absent"), "no such file", "check the spelling"}},
		{"dangling link", Options{Paths: []string{at("dangling")}}, []string{"dangling", "no such file"}},
		{"below a file", Options{Paths: []string{at("one/x")}}, []string{at("one/x"), "not a directory"}},
		{"empty path", Options{Paths: []string{""}}, []string{"an empty path"}},
		{"empty file", Options{Paths: []string{good, at("empty.txt")}}, []string{at("empty.txt"), "is empty"}},
		{"binary file", Options{Paths: []string{at("binary")}}, []string{at("binary"), "not text", "plain text"}},
		{"noise", Options{Paths: []string{at("noise")}}, []string{at("noise"), "not text"}},
		{"empty directory", Options{Paths: []string{good, at("none")}}, []string{at("none"), "no files"}},
		{"no text in directory", Options{Paths: []string{at("blank")}}, []string{at("blank"), "no text in 1 files"}},
		{"one byte", Options{Paths: []string{at("one")}}, []string{at("one"), "too few"}},
		{"device", Options{Paths: []string{os.DevNull}}, []string{os.DevNull, "neither a file nor a directory"}},
		{"negative", Options{MaxBytes: -1}, []string{"-1 bytes", "negative"}},
	} {
		_, err := Load(c.o)
		if err == nil {
			t.Errorf("%s: no error", c.name)
			continue
		}
		for _, want := range append(c.want, "corpus: ", "(at corpus/bad_test.go:") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %q has no %q", c.name, err, want)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error of several lines: %q", c.name, err)
		}
	}
	if runtime.GOOS == "linux" { // a file that can be opened and not read, even by root
		_, err := Load(Options{Paths: []string{"/proc/self/mem"}})
		if err == nil || !strings.Contains(err.Error(), "/proc/self/mem: ") || !strings.Contains(err.Error(), "; name files") {
			t.Errorf("unreadable: error %v, want one with path and remedy", err)
		}
	}
}

func TestNoGoroot(t *testing.T) {
	_, err := withSource([]string{"", t.TempDir(), "/absent"})
	if err == nil || !strings.Contains(err.Error(), "-data") {
		t.Errorf("error %v, want one that offers -data", err)
	}
	root := tree(t, map[string]string{"src/fmt/print.go": "package fmt\n"})
	if got, err := withSource([]string{"", "/absent", root, "/later"}); got != root || err != nil {
		t.Errorf("got %q, %v, want the first with source, %q", got, err, root)
	}
}

func TestGorootWithoutGoCommand(t *testing.T) {
	root := tree(t, map[string]string{"src/fmt/print.go": "package fmt\n"})
	t.Setenv("PATH", t.TempDir())
	t.Setenv("GOROOT", root)
	if got, err := goroot(); got != root || err != nil {
		t.Errorf("got %q, %v, want GOROOT, %q", got, err, root)
	}
}

func TestPermissionErrorSaysWhatToDo(t *testing.T) {
	err := pathError("/x", &os.PathError{Op: "open", Path: "/x/y", Err: os.ErrPermission})
	if got, want := err.Error(), "/x: permission denied; make it readable (chmod a+r) or leave it out"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
