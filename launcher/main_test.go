package launcher

import (
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes this test binary three programs more: gorun, its guardian, and
// testrank, the rank that the tests start. They are in PATH during the tests.
func TestMain(m *testing.M) {
	// Under the race detector each process would sleep a second before it ends.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	// A run of the tests that ignores hang-ups, under nohup, tests them as well.
	if strings.HasSuffix(os.Args[0], ".test") {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
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
