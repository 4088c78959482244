package hosts

import (
	"strconv"
	"strings"
)

// Hydra is mpiexec.hydra of MPICH. It says little about a rank that fails. On several
// hosts it waits for ever after a rank that exits without MPI_Finalize.
func Hydra() Launcher {
	return Launcher{
		Name: "MPICH", Via: "mpich", Programs: []string{"mpiexec.hydra", "mpiexec.mpich", "mpirun"},
		Also: "mpiexec", Debian: "mpich", Fedora: "mpich", Use: "MPICH's, for the same",
		Is:      func(version string) bool { return strings.Contains(version, "HYDRA build details") },
		RankVar: "PMI_RANK", SizeVar: "PMI_SIZE", ShellWaits: true, WaitsForLost: true, command: (*planner).hydra,
	}
}

// hydra writes the command line of mpiexec.hydra.
func (p *planner) hydra() error {
	job := p.job
	if p.places != nil {
		list := p.shares()
		sums := p.sums()
		if job.By == ByNode && len(list) > len(sums) {
			for r, at := range p.places {
				if p.job.Hosts[at].Name != sums[r%len(sums)].Name {
					return p.errorf("rank %d goes to %s, and MPICH deals by node only over hosts with as many ranks each; "+
						"use --map-by slot, or --via openmpi", r, p.job.Hosts[at].Name)
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
	if job.Bind == "core" {
		p.arg("-bind-to", "core")
	} else {
		p.arg("-bind-to", "none")
	}
	if job.ReportBindings {
		p.out.Env = append(p.out.Env, "HYDRA_TOPO_DEBUG=1")
	}
	if job.TagOutput {
		p.arg("-prepend-rank")
	}
	if job.Output != "" {
		p.arg("-outfile-pattern", job.Output+"/rank.%r.stdout", "-errfile-pattern", job.Output+"/rank.%r.stderr")
	}
	switch p.stdin() {
	case "none":
	case "0":
		if !job.Typed {
			p.warn("MPICH ends the job at standard input above 64 KiB; let the ranks read a file")
		}
	default:
		return p.errorf("standard input to %s; MPICH gives it to rank 0 alone: use --stdin 0 or none", p.stdin())
	}
	for i, a := range job.Apps {
		if i > 0 {
			p.arg(":")
		}
		p.arg("-n", strconv.Itoa(a.Ranks))
		for _, v := range a.Vars {
			// hydra passes on its whole environment, and with it a bare NAME.
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
