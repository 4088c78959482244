//go:build linux

package handover

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gorun-spmd/gorun/launcher/stdio"
)

// slurmName returns a name for the Slurm job, or inside an allocation the step, that
// srun makes for program. No other has it, so it can be cancelled by its name, from
// anywhere and before srun knows its number.
func slurmName(program string) string {
	base := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_':
			return r
		}
		return '_'
	}, filepath.Base(program))
	return fmt.Sprintf("%s-gorun-%s", base, strings.ToLower(rand.Text()[:10]))
}

// A canceller is a process that cancels a Slurm job if gorun and the guardian end, or
// are killed, before srun has ended by itself. It outlives both.
type canceller struct {
	name  string
	cmd   *exec.Cmd
	alive *os.File // the guardian holds it too
	ended chan error
}

// startCanceller starts a process that cancels the job or step of a name by the script.
func startCanceller(script, name string, env []string) (*canceller, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, stdio.NoPipe(err)
	}
	defer read.Close()
	c := &canceller{name: name, cmd: exec.Command("sh", "-c", script, "gorun-canceller", name), alive: write, ended: make(chan error, 1)}
	c.cmd.Stdin, c.cmd.Env = read, env
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // signals of the terminal are the launcher's
	if err := c.cmd.Start(); err != nil {
		write.Close()
		return nil, fmt.Errorf("starting the process that cancels the Slurm job: %w", err)
	}
	return c, nil
}

// cancelTime is how long gorun waits for Slurm to cancel a job.
const cancelTime = 10 * time.Second

// end has the job cancelled, or, if srun has ended by itself, the canceller end. It
// returns when that is done, and says so if it may not be.
func (c *canceller) end(over bool, signals <-chan os.Signal, say func(string, ...any)) {
	if over {
		_, _ = c.alive.WriteString("over\n") // it reads this, or was killed
	}
	c.alive.Close()
	go func() { c.ended <- c.cmd.Wait() }()
	select {
	case err := <-c.ended:
		if err == nil {
			return
		}
	case <-time.After(cancelTime):
	case <-signals:
	}
	say("the ranks may still run under Slurm: look with squeue --steps, and cancel %s", c.name)
}
