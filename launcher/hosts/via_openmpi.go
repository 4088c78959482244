package hosts

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// OpenMPI4 is mpirun of Open MPI 4 and older.
func OpenMPI4() Launcher {
	return openMPILauncher(4, func(version string) bool {
		major := openMPIMajor(version)
		return major == "4" || major == "3" || major == "2" || major == "1"
	})
}

// OpenMPI5 is mpirun or prterun of Open MPI 5 and newer.
func OpenMPI5() Launcher {
	l := openMPILauncher(5, func(version string) bool {
		first, _, _ := strings.Cut(version, "\n")
		return strings.Contains(first, "PRRTE") || openMPIMajor(version) != "" && !OpenMPI4().Is(version)
	})
	l.Several = "prterun" // mpirun of 5.0 crashes on ":"
	return l
}

func openMPILauncher(version int, is func(string) bool) Launcher {
	return Launcher{
		Name: "Open MPI " + strconv.Itoa(version), Via: "openmpi",
		Programs: []string{"mpirun", "mpirun.openmpi", "prterun"},
		Debian:   "openmpi-bin", Fedora: "openmpi", Use: "Open MPI's, for jobs over several hosts",
		Is: is, RankVar: "OMPI_COMM_WORLD_RANK", SizeVar: "OMPI_COMM_WORLD_SIZE", CountsCores: true, KillsSoon: true, Failure: openMPIFailure,
		command: func(p *planner) error { return p.openMPI(version == 5) },
	}
}

// openMPIMajor returns the major version of an mpirun that answers "mpirun (Open MPI)
// 4.1.4", or "".
func openMPIMajor(version string) string {
	first, _, _ := strings.Cut(version, "\n")
	_, number, _ := strings.Cut(first, "(Open MPI) ")
	major, _, _ := strings.Cut(number, ".")
	return major
}

// openMPI writes the command line of mpirun, of version 5 if five.
func (p *planner) openMPI(five bool) error {
	job := p.job
	if p.places == nil && job.Oversubscribe {
		capped := slices.IndexFunc(job.Hosts, func(h Host) bool { return h.MaxSlots > 0 })
		unknown := slices.IndexFunc(job.Hosts, func(h Host) bool { return !h.SlotsGiven })
		if capped >= 0 && unknown >= 0 {
			return p.errorf("%s has max_slots, which Open MPI forgets when it may oversubscribe, and %s says no slots; give it some",
				job.Hosts[capped].Name, job.Hosts[unknown].Name)
		}
	}
	mca, rsh := "--mca", "plm_rsh_args"
	if five {
		mca, rsh = "--prtemca", "plm_ssh_args"
	}
	if job.Root {
		p.out.Env = append(p.out.Env, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
		if five { // prterun has its own
			p.out.Env = append(p.out.Env, "PRTE_ALLOW_RUN_AS_ROOT=1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1")
		}
	}
	if job.Hosts != nil {
		if err := p.openMPIHosts(five, mca); err != nil {
			return err
		}
		p.arg(mca, rsh, sshKeepAlive)
		for _, kv := range [][2]string{{"time", "5"}, {"intvl", "2"}, {"probes", "3"}} {
			p.arg(mca, "oob_tcp_keepalive_"+kv[0], kv[1])
		}
	}
	by, bind := job.By.String(), "none"
	if job.Oversubscribe && p.places == nil {
		by += ":OVERSUBSCRIBE"
	}
	if job.Bind == "core" {
		bind = "core"
		if job.Oversubscribe {
			bind += ":overload-allowed"
		}
	}
	p.arg("--map-by", by, "--bind-to", bind)
	switch {
	case job.ReportBindings && five:
		p.arg("--display", "bind")
	case job.ReportBindings:
		p.arg("--report-bindings")
	}
	switch {
	case five && job.TagOutput && job.Output != "":
		p.arg("--output", "tag,dir="+job.Output)
	case five && job.TagOutput:
		p.arg("--output", "tag")
	case five && job.Output != "":
		p.arg("--output", "dir="+job.Output)
	default:
		if job.TagOutput {
			p.arg("--tag-output")
		}
		if job.Output != "" {
			p.arg("--output-filename", job.Output)
		}
	}
	p.arg("--stdin", p.stdin())
	if five && p.stdin() != "none" && !job.Typed {
		p.warn("Open MPI 5 duplicates standard input above 64 KiB; let the ranks read a file")
	}
	for i, a := range job.Apps {
		if i > 0 {
			p.arg(":")
		}
		p.arg("-np", strconv.Itoa(a.Ranks))
		if a.Dir != "" {
			p.arg("--wdir", a.Dir)
		}
		for _, v := range a.Vars {
			p.arg("-x", v)
		}
		p.arg(a.Argv...)
	}
	return nil
}

// openMPIHosts writes the host file.
func (p *planner) openMPIHosts(five bool, mca string) error {
	list := p.job.Hosts
	if p.places != nil {
		list = p.sums()
		if p.job.By == BySlot && len(p.shares()) > len(list) {
			p.warn("Open MPI takes a host's entries together: ranks are in the order of the hosts, not of the list")
		}
	}
	labels := map[string]string{}
	for _, h := range list {
		if isIPv6(h.Name) {
			return p.errorf("%s: Open MPI takes no IPv6 addresses; give the host's name", h.Name)
		}
		label, _, _ := strings.Cut(h.Name, ".")
		if other, ok := labels[label]; ok && other != h.Name && strings.Trim(h.Name, "0123456789.") != "" {
			key := "orte_keep_fqdn_hostnames"
			if five {
				key = "prte_keep_fqdn_hostnames"
			}
			p.arg(mca, key, "1")
			break
		}
		labels[label] = h.Name
	}
	text, err := Print(OpenMPI, list)
	if err != nil {
		return err
	}
	p.arg("--hostfile", p.file("hosts", text))
	return nil
}

// The lines in which mpirun says how a rank failed. The first group is the rank, the
// second the signal. Open MPI 5 writes rank and exit code on two lines.
var (
	bySignal = regexp.MustCompile(`noticed that process rank (\d+) with PID \d+ on node \S+ exited on signal (\d+)`)
	unended  = regexp.MustCompile(`has exited due to process rank (\d+) with PID`)
	nameLine = regexp.MustCompile(`^\s*Process name: \[.*,(\d+)\]$`)
	exitCode = regexp.MustCompile(`^\s*Exit code:\s+(\d+)$`)
)

// openMPIFailure reads a line of mpirun's standard error.
func openMPIFailure(line []byte, before string) (f Failure) {
	f.Ends = bytes.HasPrefix(line, []byte("Primary job  terminated normally, but "))
	if before == "" && !bytes.Contains(line, []byte("rocess ")) {
		return f
	}
	if m := bySignal.FindSubmatch(line); m != nil {
		f.set(m[1], m[2], 128)
	} else if m := unended.FindSubmatch(line); m != nil {
		f.set(m[1], []byte("0"), 0)
	} else if m := nameLine.FindSubmatch(line); m != nil {
		f.Next = string(m[1])
	} else if m := exitCode.FindSubmatch(line); m != nil && before != "" {
		f.set([]byte(before), m[1], 0)
	}
	return f
}
