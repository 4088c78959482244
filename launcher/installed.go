package launcher

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/launcher/hosts"
)

// A launcherFamily is one of --via's.
type launcherFamily struct {
	name     string   // as --via takes it
	programs []string // where it may be, best first
	debian   string   // the package that has it
}

// launcherFamilies returns all, in the order in which they are tried.
func launcherFamilies() []launcherFamily {
	return []launcherFamily{
		{"openmpi", []string{"mpirun", "mpirun.openmpi", "prterun"}, "openmpi-bin"},
		{"mpich", []string{"mpiexec.hydra", "mpiexec.mpich", "mpirun"}, "mpich"},
		{"slurm", []string{"srun"}, "slurm-client"},
	}
}

// familyOf returns the family of that name.
func familyOf(name string) (launcherFamily, bool) {
	families := launcherFamilies()
	i := slices.IndexFunc(families, func(f launcherFamily) bool { return f.name == name })
	if i < 0 {
		return launcherFamily{}, false
	}
	return families[i], true
}

// An installed launcher is one that was found.
type installed struct {
	kind    hosts.Launcher
	program string // "": kind's usual name
	path    string
}

// A finder looks for installed launchers.
type finder struct {
	look    func(name string) (path string, err error)
	version func(path string) string // what it answers to --version
}

// thisFinder looks in PATH.
func thisFinder() finder {
	return finder{exec.LookPath, func(path string) string {
		out, _ := exec.Command(path, "--version").Output()
		return string(out)
	}}
}

// choose returns the launcher for via, or the best that is installed: Slurm's own
// inside its jobs, and there alone, Open MPI's and then MPICH's elsewhere.
func (f finder) choose(via string, system hosts.Format) (installed, error) {
	if via != "" {
		family, _ := familyOf(via)
		if found, ok := f.find(family); ok {
			return found, nil
		}
		return installed{}, fmt.Errorf("--via %s: no %s in PATH; apt-get install %s", via, family.programs[0], family.debian)
	}
	names := []string{"openmpi", "mpich"}
	if system == hosts.Slurm {
		names = []string{"slurm", "openmpi", "mpich"}
	}
	for _, name := range names {
		family, _ := familyOf(name)
		if found, ok := f.find(family); ok {
			return found, nil
		}
	}
	return installed{}, fmt.Errorf("no launcher for several hosts in PATH (mpirun, mpiexec.hydra); apt-get install openmpi-bin, or mpich")
}

// find looks for one family. A file's name does not tell whose it is, mpirun may
// be either MPI's; its version does.
func (f finder) find(family launcherFamily) (installed, bool) {
	for _, name := range family.programs {
		path, err := f.look(name)
		if err != nil {
			continue
		}
		kind, ok := hosts.Srun, true
		if family.name != "slurm" {
			kind, ok = kindOf(f.version(path))
		}
		if !ok || (kind == hosts.Hydra) != (family.name == "mpich") {
			continue
		}
		it := installed{kind: kind, path: path}
		if name != kind.String() {
			it.program = filepath.Base(name)
		}
		return it, true
	}
	return installed{}, false
}

// slurmMPI returns what srun --mpi is to be: "" if Slurm's own default serves MPI
// programs, or else the plugin for the installed library. ask runs a program and
// returns what it prints.
func (f finder) slurmMPI(env func(string) (string, bool), ask func(name string, args ...string) string) string {
	if kind, ok := env("SLURM_MPI_TYPE"); ok && kind != "" {
		return ""
	}
	for line := range strings.Lines(ask("scontrol", "show", "config")) {
		name, value, _ := strings.Cut(line, "=")
		if strings.TrimSpace(name) == "MpiDefault" && strings.TrimSpace(value) != "none" {
			return ""
		}
	}
	known := strings.Fields(ask("srun", "--mpi=list"))
	family, _ := familyOf("openmpi")
	_, openMPI := f.find(family)
	switch {
	case openMPI && slices.Contains(known, "pmix"):
		return "pmix"
	case slices.Contains(known, "pmi2"):
		return "pmi2"
	}
	return ""
}

// said runs a program and returns what it prints, to either stream.
func said(name string, args ...string) string {
	out, _ := exec.Command(name, args...).CombinedOutput()
	return string(out)
}

// kindOf tells a launcher by its answer to --version: "mpirun (Open MPI) 4.1.4",
// "prterun (PRRTE) 3.0.8", or "HYDRA build details:".
func kindOf(version string) (hosts.Launcher, bool) {
	line := firstLine(version)
	_, number, openMPI := strings.Cut(line, "(Open MPI) ")
	switch {
	case strings.Contains(version, "HYDRA build details"):
		return hosts.Hydra, true
	case strings.Contains(line, "PRRTE"):
		return hosts.OpenMPI5, true
	case !openMPI:
		return 0, false
	}
	major, _, _ := strings.Cut(number, ".")
	if major == "4" || major == "3" || major == "2" || major == "1" {
		return hosts.OpenMPI4, true
	}
	return hosts.OpenMPI5, true
}
