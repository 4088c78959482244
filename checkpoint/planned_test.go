package checkpoint_test

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/checkpoint"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/internal/forecast"
)

// What each function does with ranks that run for gorun plan, and with others.
var plannedCases = map[string]func(ctx context.Context, world *comm.Comm, root string, planned bool) error{
	"Open": func(ctx context.Context, world *comm.Comm, root string, planned bool) error {
		store, err := checkpoint.Open(ctx, world, root, checkpoint.Options{})
		if err != nil {
			return err
		}
		state := numbered(world)
		if err := store.Save(ctx, 3, state); err != nil {
			return err
		}
		if step, ok, err := store.Resume(ctx, state); ok == planned || err != nil {
			return fmt.Errorf("resumed from step %d: %v, %v", step, ok, err)
		}
		return nil
	},
	"Export": func(ctx context.Context, world *comm.Comm, root string, planned bool) error {
		if err := checkpoint.Export(ctx, world, root, numbered(world), checkpoint.ExportOptions{}); err != nil {
			return err
		}
		if _, err := os.Stat(root); os.IsNotExist(err) != planned {
			return fmt.Errorf("%s: %v", root, err)
		}
		return nil
	},
	"Load": func(ctx context.Context, world *comm.Comm, root string, planned bool) error {
		err := checkpoint.Load(ctx, world, root, numbered(world), checkpoint.LoadOptions{})
		if (err == nil) != planned {
			return fmt.Errorf("what is not there was loaded: %v", err)
		}
		return nil
	},
	"OpenDigestLog": func(ctx context.Context, world *comm.Comm, root string, planned bool) error {
		path := filepath.Join(filepath.Dir(root), "digests")
		if planned && world.Rank() == 0 { // of the job that is planned
			if err := os.WriteFile(path, []byte("kept"), 0o666); err != nil {
				return err
			}
		}
		log, err := checkpoint.OpenDigestLog(ctx, world, path, false)
		if err != nil {
			return err
		}
		if err := log.Write(ctx, 1, 0, numbered(world)); err != nil {
			return err
		}
		if err := log.Close(); err != nil {
			return err
		}
		if text, err := os.ReadFile(path); err != nil || (string(text) == "kept") != planned {
			return fmt.Errorf("the file of digests is %q: %v", text, err)
		}
		return nil
	},
	"SHA256": func(ctx context.Context, world *comm.Comm, _ string, planned bool) error {
		sum, err := checkpoint.SHA256(ctx, world, numbered(world))
		if zeros := fmt.Sprintf("%064d", 0); (sum == zeros) != planned {
			return fmt.Errorf("the hash is %s", sum)
		}
		return err
	},
	// What these do is the same for gorun plan: they have no files.
	"Digests": nil, "CheckReplicas": nil, "Check": nil, "OpenSnapshots": nil,
}

// numbered returns a state of a value.
func numbered(world *comm.Comm) *checkpoint.State {
	n, state := world.Rank(), new(checkpoint.State)
	state.AddValue("n", &n)
	return state
}

// A program that runs for gorun plan keeps no checkpoints, and finds none.
func TestPlanKeepsNothing(t *testing.T) {
	for name, f := range plannedCases {
		if f == nil {
			continue
		}
		for _, planned := range []bool{false, true} {
			root := filepath.Join(t.TempDir(), "kept")
			commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
				if planned {
					world.Internals().Attr(forecast.Key{}, func() any { return struct{ forecast.Watcher }{} })
				}
				if err := f(ctx, world, root, planned); err != nil {
					return fmt.Errorf("%s, planned %v: %w", name, planned, err)
				}
				return comm.Barrier(ctx, world)
			})
			if _, err := os.Stat(root); planned && !os.IsNotExist(err) {
				t.Errorf("%s, planned: %s: %v", name, root, err)
			}
		}
	}
}

// Each function of a communicator is in plannedCases: what a new one does for gorun plan has to be said.
func TestPlanIsOfEveryFunction(t *testing.T) {
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() {
				continue
			}
			for _, p := range f.Type.Params.List {
				if star, ok := p.Type.(*ast.StarExpr); ok && fmt.Sprint(star.X) == "&{comm Comm}" {
					found++
					if _, ok := plannedCases[f.Name.Name]; !ok {
						t.Errorf("%s: %s is not in plannedCases", path, f.Name.Name)
					}
				}
			}
		}
	}
	if found != len(plannedCases) {
		t.Errorf("%d functions of a communicator, and %d cases", found, len(plannedCases))
	}
}
