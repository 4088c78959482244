package launcher

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/launcher/hosts"
)

// hostOptions is what the command line says about other hosts.
type hostOptions struct {
	file          string // --hostfile
	format        hosts.Format
	list          string // --host
	via           string // a key of launcherFamilies; "": what is installed
	oversubscribe bool
}

// given reports whether the user spoke of hosts or of another launcher.
func (h *hostOptions) given() bool { return h.file != "" || h.list != "" || h.via != "" }

// define adds the flags about hosts.
func (h *hostOptions) define(f *flag.FlagSet) {
	f.Func("hostfile", "", text(&h.file))
	f.Func("hostfile-format", "", func(s string) (err error) {
		h.format, err = hosts.ParseFormat(s)
		return withoutOp(err)
	})
	f.Func("host", "", text(&h.list))
	f.Func("via", "", func(s string) error {
		if _, ok := familyOf(s); !ok {
			return fmt.Errorf("%q is no launcher; give openmpi, mpich or slurm", s)
		}
		h.via = s
		return nil
	})
	f.BoolVar(&h.oversubscribe, "oversubscribe", h.oversubscribe, "")
}

// validate checks what flags alone cannot.
func (h *hostOptions) validate() error {
	switch {
	case h.file != "" && h.list != "":
		return errors.New("--hostfile and --host: give one of them")
	case h.format != hosts.Auto && h.file == "":
		return errors.New("--hostfile-format: there is no --hostfile")
	}
	return nil
}

// A hostList is where the ranks may go.
type hostList struct {
	hosts    []hosts.Host // nil: this host, nobody said otherwise
	system   hosts.Format // of the batch system that gave them; Auto: none
	warnings []hosts.Warning
}

// find reads the hosts that the user named, or else those that a batch system has
// given to this job.
func (h *hostOptions) find(env func(string) (string, bool)) (l hostList, err error) {
	switch {
	case h.file != "":
		text, err := os.ReadFile(h.file)
		if err != nil {
			return l, fmt.Errorf("--hostfile %s: %v", h.file, errors.Unwrap(err))
		}
		l.hosts, l.warnings, err = hosts.Parse(h.file, text, h.format)
		return l, err
	case h.list != "":
		l.hosts, err = hosts.ParseList(h.list)
		return l, err
	}
	a, ok, err := hosts.FromEnv(env, os.ReadFile)
	if err != nil || !ok {
		return l, err
	}
	if h.via == "" && len(distinct(a.Hosts)) < 2 {
		return l, nil
	}
	return hostList{a.Hosts, a.System, a.Warnings}, nil
}

// distinct returns the names of list, each once.
func distinct(list []hosts.Host) []string {
	var names []string
	for _, h := range list {
		if !slices.Contains(names, h.Name) {
			names = append(names, h.Name)
		}
	}
	return names
}

// onlyHere reports whether every host of the list is this one, whose own name is
// self.
func (l *hostList) onlyHere(self string) bool {
	short := func(name string) string {
		name, _, _ = strings.Cut(name, ".")
		return name
	}
	return !slices.ContainsFunc(l.hosts, func(h hosts.Host) bool {
		local := slices.Contains([]string{"localhost", "127.0.0.1", "::1", self, short(self)}, h.Name) || short(h.Name) == self
		return !local || h.User != "" || h.Port != 0
	})
}

// fit gives a program without -np a rank for each slot of the list, and refuses
// more ranks than there are slots.
func (l *hostList) fit(o *options, cores int) error {
	if l.hosts == nil {
		return nil
	}
	if a := &o.apps[0]; a.all {
		a.ranks = max(1, hosts.Slots(l.hosts, cores))
	}
	by, err := hosts.ParseMapBy(o.mapBy)
	if err != nil {
		return fmt.Errorf("--map-by %s: over hosts give slot or node", o.mapBy)
	}
	_, err = hosts.Assign(l.hosts, o.size(), hosts.Options{By: by, Oversubscribe: o.hosts.oversubscribe, Cores: cores})
	return withoutOp(err)
}

// withoutOp takes the package and function off an error that is for the command's user.
func withoutOp(err error) error {
	if err == nil {
		return nil
	}
	if text, ok := strings.CutPrefix(err.Error(), "hosts: "); ok {
		if _, rest, ok := strings.Cut(text, ": "); ok {
			return errors.New(rest)
		}
	}
	return err
}

// hostsUsage is the second page of help, of the same size.
const hostsUsage = `usage: gorun --hostfile FILE [flags] program [arguments]
Ranks on several hosts are started by the installed mpirun, mpiexec.hydra or
srun. Inside a Slurm, PBS, Grid Engine or LSF job of several hosts no flag is
needed. The program must have the same path on every host; Go source is built
here. If all hosts are this one, gorun starts the ranks itself.
  --hostfile FILE     hosts, as Open MPI, MPICH, PBS or Slurm write them:
                      node1 slots=4    node1:4    node[1-4]
  --hostfile-format F openmpi, mpich, plain, pbs, sge, lsf, slurm or auto
  --host LIST         hosts with slots, a:2,b:2, instead of a file
  --via NAME          openmpi, mpich or slurm starts the ranks, here too
  --oversubscribe     allow more ranks than slots (max_slots holds nevertheless)
  --map-by WHAT       slot (default): fill a host, then the next; node: in turn
  --dry-run           print the host file and the launcher's command line

Without -np there is one rank for each slot. --timeout, --grace, --wdir, -x and
Ctrl-C do what they do on one host. --tag-output and --output look as the
launcher has them. --bind-to is none. There are no --max-restarts, and what
hangs is found by --timeout alone. A host that is not heard of for 9 s ends
the job, unless --hang-timeout is 0. The exit status is that of the rank that
failed, if it could tell, and else the launcher's: MPICH's gives a bare signal
number, and lets ranks without MPI go on when one fails.
`
