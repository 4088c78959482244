//go:build linux

package handover

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/launcher/hosts"
)

// An installed launcher is one that was found.
type installed struct {
	hosts.Launcher
	program string // "": the launcher's usual name
}

// A finder looks for installed launchers.
type finder struct {
	launchers []hosts.Launcher // all there are, in the order in which they are tried
	look      func(name string) (path string, err error)
	version   func(path string) string // what it answers to --version
}

// thisFinder looks in PATH.
func thisFinder() finder {
	return finder{hosts.Launchers(), exec.LookPath, func(path string) string {
		out, _ := exec.Command(path, "--version").Output()
		return string(out)
	}}
}

// choose returns the launcher for via. Without it, it is the first that is installed: a
// batch system's own launcher in its jobs, and there alone, and then those for any hosts.
func (f finder) choose(via string, system hosts.Format) (installed, error) {
	if via != "" {
		if found, ok := f.find(via); ok {
			return found, nil
		}
		i := slices.IndexFunc(f.launchers, func(l hosts.Launcher) bool { return l.Via == via })
		l := f.launchers[i]
		return installed{}, fmt.Errorf("--via %s: no %s in PATH; apt-get install %s", via, l, l.Debian)
	}
	for _, of := range []hosts.Format{system, hosts.Auto} {
		for _, l := range f.launchers {
			if l.System == of {
				if found, ok := f.find(l.Via); ok {
					return found, nil
				}
			}
		}
	}
	var programs, packages []string
	for _, l := range f.launchers {
		if l.System == hosts.Auto && !slices.Contains(packages, l.Debian) {
			programs, packages = append(programs, l.String()), append(packages, l.Debian)
		}
	}
	return installed{}, fmt.Errorf("no launcher for several hosts in PATH (%s); apt-get install %s",
		strings.Join(programs, ", "), strings.Join(packages, ", or "))
}

// find looks for a launcher of a name of --via. A program's name does not tell whose it
// is, because mpirun may be of either MPI library; its version does.
func (f finder) find(via string) (installed, bool) {
	versions := slices.DeleteFunc(slices.Clone(f.launchers), func(l hosts.Launcher) bool { return l.Via != via })
	for _, name := range versions[0].Programs {
		path, err := f.look(name)
		if err != nil {
			continue
		}
		for _, l := range versions {
			if l.Is != nil && !l.Is(f.version(path)) {
				continue
			}
			it := installed{Launcher: l}
			if name != l.String() {
				it.program = filepath.Base(name)
			}
			return it, true
		}
	}
	return installed{}, false
}

// mpi returns the value of hosts.Job.MPI for a launcher.
func (f finder) mpi(l hosts.Launcher, env func(string) (string, bool), ask hosts.Ask) string {
	if l.MPI == nil {
		return ""
	}
	return l.MPI(env, ask, func(via string) bool { _, ok := f.find(via); return ok })
}

// said runs a program and returns what it prints, to either stream.
func said(name string, args ...string) string {
	out, _ := exec.Command(name, args...).CombinedOutput()
	return string(out)
}
