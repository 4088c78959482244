package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// What is wrong for one system alone is found there, in tests too, and nothing elsewhere.
func TestVet(t *testing.T) {
	module := map[string]string{
		"go.mod":       "module example.org/m\n\ngo 1.26\n",
		"m.go":         "package m\n\nfunc F() int { return g() }\n",
		"m_linux.go":   "package m\n\nfunc g() int { return 1 }\n",
		"m_windows.go": "package m\n\nfunc g() int { return 2 }\n",
	}
	for _, c := range []struct {
		name, file, text string
		system, says     string // a regular expression; none: nothing is wrong
	}{
		{"all right", "", "", "windows/amd64", ""},
		{"a function is missing", "", "", "darwin/amd64", `m\.go:3:\d+: undefined: g`},
		{"a format", "p_windows.go", "package m\n\nimport \"fmt\"\n\nfunc P() { fmt.Printf(\"%d\", \"x\") }\n", "windows/amd64",
			`p_windows\.go:5:\d+: fmt\.Printf format %d has arg "x" of wrong type string`},
		{"that format, elsewhere", "p_windows.go", "package m\n\nimport \"fmt\"\n\nfunc P() { fmt.Printf(\"%d\", \"x\") }\n", "linux/amd64", ""},
		{"a test", "m_test.go", "package m\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) { t.Fatal(H()) }\n", "linux/arm64",
			`m_test\.go:5:\d+: undefined: H`},
		{"an assembly function", "a_arm64.s", "TEXT ·h(SB), 4, $0-16\n\tMOVD x+0(FP), R0\n\tRET\n", "linux/arm64",
			`a_arm64\.s:3:\d+: .* RET without writing to 8-byte ret`},
		{"a tag", "t.go", "//go:build extra\n\npackage m\n\nvar _ = H\n", "linux/amd64,extra", `t\.go:5:\d+: undefined: H`},
		{"that tag, not given", "t.go", "//go:build extra\n\npackage m\n\nvar _ = H\n", "linux/amd64", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			files, dir := maps.Clone(module), t.TempDir()
			if c.file != "" {
				files[c.file] = c.text
			}
			if c.file == "a_arm64.s" {
				files["a_arm64.go"] = "package m\n\nfunc h(x int32) int64\n"
			}
			for name, text := range files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			found, err := vet(dir, c.system)
			switch {
			case err != nil:
				t.Fatal(err)
			case c.says == "" && len(found) > 0 || c.says != "" && (len(found) != 1 || !regexp.MustCompile(c.says).MatchString(found[0])):
				t.Errorf("found %q, want %q", found, c.says)
			}
		})
	}
	if _, err := vet(t.TempDir(), "linux"); err == nil {
		t.Error("a system without an architecture is taken")
	}
}
