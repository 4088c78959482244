package hosts

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// sshKeepAlive makes ssh end within 6 s of a host that has gone.
const sshKeepAlive = "-o ServerAliveInterval=2 -o ServerAliveCountMax=2"

// openMPI writes the command line of mpirun.
func (p *planner) openMPI() error {
	j := p.job
	five := p.launcher == OpenMPI5
	mca, rsh := "--mca", "plm_rsh_args"
	if five {
		mca, rsh = "--prtemca", "plm_ssh_args"
	}
	if j.Root {
		p.out.Env = append(p.out.Env, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
		if five { // prterun has its own
			p.out.Env = append(p.out.Env, "PRTE_ALLOW_RUN_AS_ROOT=1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1")
		}
	}
	if j.Hosts != nil {
		if err := p.openMPIHosts(mca); err != nil {
			return err
		}
		p.arg(mca, rsh, sshKeepAlive)
		for _, kv := range [][2]string{{"time", "5"}, {"intvl", "2"}, {"probes", "3"}} {
			p.arg(mca, "oob_tcp_keepalive_"+kv[0], kv[1])
		}
	}
	by, bind := j.By.String(), "none"
	if j.Oversubscribe && p.places == nil {
		by += ":OVERSUBSCRIBE"
	}
	if j.Bind == "core" {
		bind = "core"
		if j.Oversubscribe {
			bind += ":overload-allowed"
		}
	}
	p.arg("--map-by", by, "--bind-to", bind)
	switch {
	case j.ReportBindings && five:
		p.arg("--display", "bind")
	case j.ReportBindings:
		p.arg("--report-bindings")
	}
	switch {
	case five && j.TagOutput && j.Output != "":
		p.arg("--output", "tag,dir="+j.Output)
	case five && j.TagOutput:
		p.arg("--output", "tag")
	case five && j.Output != "":
		p.arg("--output", "dir="+j.Output)
	default:
		if j.TagOutput {
			p.arg("--tag-output")
		}
		if j.Output != "" {
			p.arg("--output-filename", j.Output)
		}
	}
	p.arg("--stdin", p.stdin())
	if five && p.stdin() != "none" && !j.Typed {
		p.warn("Open MPI 5 duplicates standard input above 64 KiB; let the ranks read a file")
	}
	for i, a := range j.Apps {
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
func (p *planner) openMPIHosts(mca string) error {
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
			if p.launcher == OpenMPI5 {
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

// hydra writes the command line of mpiexec.hydra.
func (p *planner) hydra() error {
	j := p.job
	if p.places != nil {
		list := p.shares()
		sums := p.sums()
		if j.By == ByNode && len(list) > len(sums) {
			for r, at := range p.places {
				if p.job.Hosts[at.Host].Name != sums[r%len(sums)].Name {
					return p.errorf("rank %d goes to %s, and MPICH deals by node only over hosts with as many ranks each; "+
						"use --map-by slot, or --via openmpi", r, p.job.Hosts[at.Host].Name)
				}
			}
			list = sums
			defer p.insert("-ppn", "1")
		} else if len(list) > len(sums) {
			p.warn("MPICH takes the separate entries of one host for several hosts; list each host once")
		}
		text, err := Print(MPICH, list)
		if err != nil {
			return err
		}
		p.arg("-f", p.file("hosts", text))
		p.out.Env = append(p.out.Env, "HYDRA_LAUNCHER_EXTRA_ARGS="+sshKeepAlive)
	}
	if j.Bind == "core" {
		p.arg("-bind-to", "core")
	} else {
		p.arg("-bind-to", "none")
	}
	if j.ReportBindings {
		p.out.Env = append(p.out.Env, "HYDRA_TOPO_DEBUG=1")
	}
	if j.TagOutput {
		p.arg("-prepend-rank")
	}
	if j.Output != "" {
		p.arg("-outfile-pattern", j.Output+"/rank.%r.stdout", "-errfile-pattern", j.Output+"/rank.%r.stderr")
	}
	switch p.stdin() {
	case "none":
	case "0":
		if !j.Typed {
			p.warn("MPICH ends the job at standard input above 64 KiB; let the ranks read a file")
		}
	default:
		return p.errorf("standard input to %s; MPICH gives it to rank 0 alone: use --stdin 0 or none", p.stdin())
	}
	for i, a := range j.Apps {
		if i > 0 {
			p.arg(":")
		}
		p.arg("-n", strconv.Itoa(a.Ranks))
		for _, v := range a.Vars {
			// A bare NAME comes along with the rest of the environment.
			if name, value, ok := strings.Cut(v, "="); ok {
				p.arg("-env", name, value)
			}
		}
		if a.Dir != "" {
			p.arg("-wdir", a.Dir)
		}
		p.arg(a.Argv...)
	}
	return nil
}

// insert puts args behind the program's name.
func (p *planner) insert(args ...string) { p.out.Argv = slices.Insert(p.out.Argv, 1, args...) }

// srun writes the command line of srun.
func (p *planner) srun() error {
	j := p.job
	distribution := map[MapBy]string{BySlot: "block", ByNode: "cyclic"}[j.By]
	p.arg("--ntasks=" + strconv.Itoa(p.size()))
	if p.places != nil {
		var text strings.Builder // a host a rank
		for _, at := range p.places {
			h := j.Hosts[at.Host]
			if h.User != "" || h.Port > 0 || isIPv6(h.Name) {
				return p.errorf("%s: Slurm starts ranks as you, on hosts by its own names; leave out user, port and address", h)
			}
			text.WriteString(h.Name + "\n")
		}
		distribution = "arbitrary"
		p.out.Env = append(p.out.Env, "SLURM_HOSTFILE="+p.file("hosts", text.String()))
		p.arg("--nodes=" + strconv.Itoa(len(p.sums())))
	}
	p.arg("--distribution="+distribution, "--kill-on-bad-exit=1", "--unbuffered")
	if j.MPI != "" {
		p.arg("--mpi=" + j.MPI)
	}
	if j.Oversubscribe {
		p.arg("--overcommit")
	}
	bind := "none"
	if j.Bind == "core" {
		bind = "cores"
	}
	if j.ReportBindings {
		bind = "verbose," + bind
	}
	p.arg("--cpu-bind=" + bind)
	if j.TagOutput {
		p.arg("--label")
	}
	if j.Output != "" {
		p.arg("--output="+j.Output+"/rank.%t.stdout", "--error="+j.Output+"/rank.%t.stderr")
	}
	p.arg("--input=" + p.stdin())
	if len(j.Apps) > 1 {
		return p.srunPrograms()
	}
	a := j.Apps[0]
	if a.Dir != "" {
		p.arg("--chdir=" + a.Dir)
	}
	for _, v := range a.Vars {
		if strings.Contains(v, "=") { // srun passes its whole environment on
			p.out.Env = append(p.out.Env, v)
		}
	}
	p.arg(a.Argv...)
	return nil
}

// srunPrograms writes the file by which srun starts several programs; env gives
// each its own variables and folder.
func (p *planner) srunPrograms() error {
	var text strings.Builder
	rank := 0
	for _, a := range p.job.Apps {
		var words []string
		if a.Dir != "" || len(a.Vars) > 0 {
			words = append(words, "env")
		}
		if a.Dir != "" {
			words = append(words, "-C", a.Dir)
		}
		for _, v := range a.Vars {
			if strings.Contains(v, "=") {
				words = append(words, v)
			}
		}
		words = append(words, a.Argv...)
		for _, w := range words {
			if Quote(w) != w || strings.Contains(w, "%") {
				return p.errorf("%q: srun's file of several programs cannot hold this word; use --via openmpi, or a script", w)
			}
		}
		fmt.Fprintf(&text, "%d-%d %s\n", rank, rank+a.Ranks-1, strings.Join(words, " "))
		rank += a.Ranks
	}
	p.arg("--multi-prog", p.file("programs", text.String()))
	return nil
}
