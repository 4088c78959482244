package hosts

import (
	"strings"
)

// An Allocation is the hosts that a batch system has given to a job.
type Allocation struct {
	System   Format // Slurm, PBS, SGE or LSF
	Source   string // description for people: "Slurm job 17 (SLURM_JOB_NODELIST)"
	Hosts    []Host
	Warnings []Warning
}

// FromEnv finds the allocation in the environment. env looks up a variable; read reads a file
// that a variable names. If there are several allocations, FromEnv takes Slurm's before PBS's,
// PBS's before Grid Engine's, and that before LSF's. The Source names the one that it took, and
// warnings name the others. The bool is false if there is none. Errors name the variable in
// place of a file.
func FromEnv(env func(string) (string, bool), read func(string) ([]byte, error)) (Allocation, bool, error) {
	set := func(name string) (string, bool) {
		v, ok := env(name)
		return v, ok && v != ""
	}
	systems := []struct {
		format    Format
		name, job string // the name in Source; the variable with the job's number
		variables []string
		file      bool // the variable names a file
	}{
		{format: Slurm, name: "Slurm", job: "SLURM_JOB_ID", variables: []string{"SLURM_JOB_NODELIST", "SLURM_NODELIST"}},
		{format: PBS, name: "PBS", job: "PBS_JOBID", variables: []string{"PBS_NODEFILE"}, file: true},
		{format: SGE, name: "Grid Engine", job: "JOB_ID", variables: []string{"PE_HOSTFILE"}, file: true},
		{format: LSF, name: "LSF", job: "LSB_JOBID", variables: []string{"LSB_MCPU_HOSTS"}},
	}
	var found Allocation
	ok := false
	for _, s := range systems {
		for _, variable := range s.variables {
			value, is := set(variable)
			if !is {
				continue
			}
			if ok {
				found.Warnings = append(found.Warnings, Position{variable, 1, 1}.warningf(
					"passed over, as the hosts come from %s; unset one of the two", found.Source))
				break
			}
			ok = true
			found = Allocation{System: s.format, Source: s.name + " (" + variable + ")"}
			if id, is := set(s.job); is {
				found.Source = s.name + " job " + id + " (" + variable + ")"
			}
			var err error
			if s.format == Slurm {
				found.Hosts, err = slurmHosts(variable, value, set)
			} else {
				name, text := variable, []byte(value)
				if s.file {
					if text, err = read(value); err != nil {
						return Allocation{}, false, Position{variable, 1, 1}.errorf("%v; name the hosts with --hostfile", err)
					}
					name = value
				}
				found.Hosts, _, err = Parse(name, text, s.format)
			}
			if err != nil {
				return Allocation{}, false, err
			}
			break
		}
	}
	return found, ok, nil
}

// slurmHosts reads a node list, and as slots the tasks of each node, or else its CPUs.
func slurmHosts(variable, list string, set func(string) (string, bool)) ([]Host, error) {
	names, err := Position{variable, 1, 1}.expand(strings.TrimSpace(list))
	if err != nil {
		return nil, err
	}
	out := make([]Host, len(names))
	for i, n := range names {
		out[i].Name = n
	}
	for _, per := range []string{"SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE"} {
		text, ok := set(per)
		if !ok {
			continue
		}
		at := Position{per, 1, 1}
		counts, err := at.expandCounts(text)
		if err != nil {
			return nil, err
		}
		if len(counts) != len(names) {
			return nil, at.errorf("%s counts %d hosts, but %s has %d; unset it, or name the hosts with --hostfile",
				show(text), len(counts), variable, len(names))
		}
		for i, n := range counts {
			out[i].Slots, out[i].SlotsGiven = n, true
		}
		break
	}
	return out, nil
}
