//go:build linux

package handover

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/launcher/hosts"
)

// TestCanceller has programs in the place of Slurm's: squeue lists a job and a step until
// scancel, which writes down what it is asked, has been called without a signal.
func TestCanceller(t *testing.T) {
	for _, c := range []struct {
		name       string
		allocation string
		over, deaf bool
		asked      string // of scancel
		said       bool
	}{
		{"srun has ended", "", true, false, "", false},
		{"a job", "", false, false, "--signal=KILL 7,7,", false},
		{"a step of an allocation", "12", false, false, "--signal=KILL 12.3,12.3,", false},
		{"Slurm does not answer", "", false, true, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			program := func(name, text string) {
				if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			program("squeue", fmt.Sprintf(`[ -e %[1]s/done ] && exit
case "$*" in
*--steps*--jobs=12*) printf 'another 12.2\nmine 12.3\n';;
*--name=mine*) echo 7;;
esac`, dir))
			program("scancel", fmt.Sprintf(`printf '%%s,' "$*" >>%[1]s/asked; [ $# = 2 ] || : >%[1]s/done`, dir))
			program("sleep", "") // the script's pauses take no time
			if c.deaf {
				program("squeue", "exit 1")
			}
			k, err := startCanceller(hosts.Srun().Cancel, "mine",
				append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "SLURM_JOB_ID="+c.allocation))
			if err != nil {
				t.Fatal(err)
			}
			ignored := func() bool {
				status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", k.cmd.Process.Pid))
				if err != nil {
					t.Fatal(err)
				}
				_, mask, _ := strings.Cut(string(status), "SigIgn:\t")
				mask, _, _ = strings.Cut(mask, "\n")
				set, err := strconv.ParseUint(mask, 16, 64)
				return err == nil && set&(1<<(syscall.SIGTERM-1)) != 0
			}
			for i := 0; !ignored(); i++ { // until it has begun
				if i > 1000 {
					t.Fatal("SIGTERM ends it, which Slurm sends to all of a job's processes")
				}
				time.Sleep(10 * time.Millisecond)
			}
			if err := k.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			said := ""
			k.end(c.over, nil, func(format string, args ...any) { said = fmt.Sprintf(format, args...) })
			asked, _ := os.ReadFile(filepath.Join(dir, "asked"))
			if string(asked) != c.asked {
				t.Errorf("scancel was asked %q, want %q", asked, c.asked)
			}
			if (said != "") != c.said || c.said && !strings.HasSuffix(said, "cancel mine") {
				t.Errorf("said %q", said)
			}
		})
	}
}

func TestSlurmName(t *testing.T) {
	a, b := slurmName("/bin/my train,1"), slurmName("/bin/my train,1")
	if a == b || !regexp.MustCompile(`^my_train_1-gorun-[a-z2-7]{10}$`).MatchString(a) {
		t.Errorf("got %s and %s", a, b)
	}
}
