//go:build linux

package launcher

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gorun-spmd/gorun/internal/testenv"
	"github.com/gorun-spmd/gorun/launcher/guardian"
	"github.com/gorun-spmd/gorun/launcher/machine"
	"github.com/gorun-spmd/gorun/launcher/options"
)

// TestMain makes this test binary three programs more: gorun, its guardian, and
// testrank, the rank that the tests start. They are in PATH during the tests.
func TestMain(m *testing.M) {
	testenv.Children()
	gorun := func() { os.Exit(Main(os.Args)) }
	testscript.Main(m, map[string]func(){
		"gorun":       gorun,
		guardian.Name: gorun,
		"testrank":    func() { os.Exit(testRank(os.Args[1:])) },
		"gorun-goroutines": func() { // as gorun on another system
			o, err := options.Parse(os.Args[1:], machine.Cores(), os.LookupEnv, os.Stderr)
			if err != nil {
				os.Exit(complain(err, 2))
			}
			status, err := startGoroutines(o, "plan9", os.Stdout, os.Stderr)
			if err != nil {
				os.Exit(complain(err, 1))
			}
			os.Exit(status)
		},
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			// Go's build cache and configuration are the user's, or each script would compile the standard library.
			for _, name := range []string{"HOME", "GOCACHE", "GOPATH", "GOMODCACHE", "GOFLAGS", "GOPROXY"} {
				if v, ok := os.LookupEnv(name); ok {
					e.Setenv(name, v)
				}
			}
			return nil
		},
	})
}
