//go:build linux

package handover

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/launcher/hosts"
	"github.com/gorun-spmd/gorun/launcher/options"
)

// TestIs holds that an answer to --version is of one launcher at most.
func TestIs(t *testing.T) {
	for _, c := range []struct{ version, want string }{
		{"mpirun (Open MPI) 4.1.4\n\nReport bugs to", "Open MPI 4"},
		{"mpirun (Open MPI) 5.0.7\n", "Open MPI 5"},
		{"mpirun (Open MPI) 10.0.0\n", "Open MPI 5"},
		{"prterun (PRRTE) 3.0.8\n", "Open MPI 5"},
		{"HYDRA build details:\n    Version:  4.0.2\n", "MPICH"},
		{"Intel(R) MPI Library for Linux\n", ""},
		{"", ""},
	} {
		got := ""
		for _, l := range hosts.Launchers() {
			if l.Is != nil && l.Is(c.version) {
				got += l.Name
			}
		}
		if got != c.want {
			t.Errorf("%q: got %q, want %q", c.version, got, c.want)
		}
	}
}

// TestChooseLauncher is of machines that differ in what is installed, name:version each.
func TestChooseLauncher(t *testing.T) {
	const ompi, hydra = "mpirun (Open MPI) 4.1.4", "HYDRA build details:"
	for _, c := range []struct {
		installed map[string]string
		via       string
		system    hosts.Format
		want      string // the program; "": none
	}{
		{map[string]string{"mpirun": ompi, "mpiexec.hydra": hydra}, "", hosts.Auto, "mpirun"},
		{map[string]string{"mpirun": ompi, "mpiexec.hydra": hydra}, "mpich", hosts.Auto, "mpiexec.hydra"},
		{map[string]string{"mpirun": hydra}, "", hosts.Auto, "mpirun"},
		{map[string]string{"mpirun": hydra}, "openmpi", hosts.Auto, ""},
		{map[string]string{"mpirun": hydra, "mpirun.openmpi": ompi}, "openmpi", hosts.Auto, "mpirun.openmpi"},
		{map[string]string{"mpirun": ompi, "srun": ""}, "", hosts.Slurm, "srun"},
		{map[string]string{"mpirun": ompi, "srun": ""}, "", hosts.PBS, "mpirun"},
		{map[string]string{"mpirun": ompi}, "", hosts.Slurm, "mpirun"},
		{map[string]string{"srun": ""}, "", hosts.Auto, ""},
		{map[string]string{"srun": ""}, "slurm", hosts.Auto, "srun"},
		{nil, "", hosts.Auto, ""},
	} {
		f := finder{hosts.Launchers(), func(name string) (string, error) {
			if _, ok := c.installed[name]; !ok {
				return "", errors.New("not there")
			}
			return "/bin/" + name, nil
		}, func(path string) string { return c.installed[filepath.Base(path)] }}
		found, err := f.choose(c.via, c.system)
		got := found.program
		if err == nil && got == "" {
			got = found.String()
		}
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%v, --via %q in %v: got %q and %v, want %q", c.installed, c.via, c.system, got, err, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), "apt-get install ") {
			t.Errorf("%v names no package", err)
		}
	}
}

func TestOnlyHere(t *testing.T) {
	for _, c := range []struct {
		list string
		want bool
	}{
		{"localhost", true}, {"127.0.0.1", true}, {"node1", true}, {"node1.example.org", true}, {"localhost,node1:3", true},
		{"node2", false}, {"node1,node2", false}, {"node11", false}, {"root@localhost", false},
	} {
		list, err := hosts.ParseList(c.list)
		if err != nil {
			t.Fatal(err)
		}
		for _, self := range []string{"node1", "node1.example.org"} {
			l := hostList{hosts: list}
			if got := l.onlyHere(self); got != c.want {
				t.Errorf("%s on %s: got %v, want %v", c.list, self, got, c.want)
			}
		}
	}
}

// TestAnotherLauncher holds that a further launcher needs nothing here but its value.
func TestAnotherLauncher(t *testing.T) {
	flux := hosts.Launcher{Name: "Flux", Via: "flux", Programs: []string{"flux"}, System: hosts.PBS, Debian: "flux-core"}
	f := finder{append(hosts.Launchers(), flux), func(name string) (string, error) { return "/bin/" + name, nil },
		func(string) string { return "" }}
	for _, via := range []string{"flux", ""} {
		if found, err := f.choose(via, hosts.PBS); err != nil || found.Name != "Flux" {
			t.Errorf("--via %q: got %v and %v, want flux", via, found.Launcher, err)
		}
	}
	f.look = func(string) (string, error) { return "", errors.New("not there") }
	if _, err := f.choose("flux", hosts.Auto); err == nil || !strings.Contains(err.Error(), "no flux in PATH; apt-get install flux-core") {
		t.Errorf("without flux: %v", err)
	}
}

// TestSlurmMPI is of sites that differ in their defaults, and in what is installed.
func TestSlurmMPI(t *testing.T) {
	const list = "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\nspecific pmix plugin versions available: pmix_v4\n"
	for _, c := range []struct {
		name, set, config, list string
		openMPI                 bool
		want                    string
	}{
		{"the site's default", "", "MpiDefault              = pmix\n", list, true, ""},
		{"the user's own", "pmi2", "MpiDefault = none\n", list, true, ""},
		{"Open MPI", "", "ClusterName = c\nMpiDefault              = none\n", list, true, "pmix"},
		{"MPICH", "", "MpiDefault = none\n", list, false, "pmi2"},
		{"no pmix", "", "MpiDefault = none\n", "none pmi2\n", true, "pmi2"},
		{"nothing", "", "MpiDefault = none\n", "none\n", true, ""},
		{"no Slurm", "", "", "", true, ""},
	} {
		f := finder{hosts.Launchers(), func(name string) (string, error) {
			if name != "mpirun" || !c.openMPI {
				return "", errors.New("not there")
			}
			return name, nil
		}, func(string) string { return "mpirun (Open MPI) 4.1.4" }}
		env := func(string) (string, bool) { return c.set, c.set != "" }
		ask := func(name string, _ ...string) string {
			return map[string]string{"scontrol": c.config, "srun": c.list}[name]
		}
		if got := f.mpi(hosts.Srun(), env, ask); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// Ranks on other hosts are told after what time without an answer they end.
func TestHostTimeout(t *testing.T) {
	const name = job.HostTimeoutVar
	h := &Handover{opts: &options.Options{HangTimeout: time.Minute}}
	check := func(want []string, vars ...string) {
		t.Helper()
		if got := h.hostTimeout(vars); !slices.Equal(got, want) {
			t.Errorf("with %v: got %v, want %v", vars, got, want)
		}
	}
	t.Setenv(name, "")
	os.Unsetenv(name)
	check([]string{name + "=15s"}, name+"S=1")
	check(nil, "A=1", name+"=1m")
	check(nil, name)
	t.Setenv(name, "1h")
	check([]string{name + "=1h"})
	h.opts.HangTimeout = 0
	check([]string{name + "=0"})
}

// Rank 0 is told after what time without movement it ends the job, if that is not gorun's default.
func TestHangTimeout(t *testing.T) {
	const name = job.HangTimeoutVar
	h := &Handover{opts: &options.Options{HangTimeout: time.Minute}}
	check := func(want []string, vars ...string) {
		t.Helper()
		if got := h.hangTimeout(vars); !slices.Equal(got, want) {
			t.Errorf("with %v: got %v, want %v", vars, got, want)
		}
	}
	t.Setenv(name, "")
	os.Unsetenv(name)
	check(nil)
	t.Setenv(name, "1h")
	check([]string{name + "=1h"})
	check(nil, name+"=2h")
	h.opts.HangGiven = true
	check([]string{name + "=1m0s"}, name+"S=1")
	check(nil, name)
	h.opts.HangTimeout = 0
	check([]string{name + "=0s"})
}
