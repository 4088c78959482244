package launcher

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gorun-spmd/gorun/internal/needtest"
)

// TestMain makes this test binary three programs more: gorun, its guardian, and
// testrank, the rank that the tests start. They are in PATH during the tests.
func TestMain(m *testing.M) {
	needtest.Children()
	gorun := func() { os.Exit(Main(os.Args)) }
	testscript.Main(m, map[string]func(){
		"gorun":      gorun,
		guardianName: gorun,
		"testrank":   func() { os.Exit(testRank(os.Args[1:])) },
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
