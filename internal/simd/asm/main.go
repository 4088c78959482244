// Command asm writes the assembly of internal/simd and internal/gemm.
//
// It is a module of its own, so that the module gorun does not depend on the
// generator it uses, avo. After changing it, run go generate in either package;
// its test fails while the files are not what it would write.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
)

func main() {
	root := flag.String("root", "../..", "the directory that holds simd and gemm")
	flag.Parse()
	files, err := generate()
	if err == nil {
		err = write(*root, files)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "asm:", err)
		os.Exit(1)
	}
}

// write stores each file below root.
func write(root string, files map[string][]byte) error {
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(root, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate returns every generated file by its path below internal.
func generate() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, u := range []struct {
		pkg, name string
		emit      func(*build.Context)
	}{
		{"gemm", "tile", tiles},
		{"gemm", "pack", packs},
	} {
		c := build.NewContext()
		c.ConstraintExpr("amd64")
		u.emit(c)
		f, err := c.Result()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", u.name, err)
		}
		if err := pass.Compile.Execute(f); err != nil {
			return nil, fmt.Errorf("%s: %w", u.name, err)
		}
		cfg := printer.Config{Argv: []string{"go", "generate"}, Pkg: u.pkg}
		for suffix, p := range map[string]printer.Printer{"_amd64.s": printer.NewGoAsm(cfg), "_amd64.go": printer.NewStubs(cfg)} {
			text, err := p.Print(f)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", u.name, err)
			}
			files[u.pkg+"/"+u.name+suffix] = text
		}
	}
	return files, nil
}
