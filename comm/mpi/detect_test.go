package mpi

import "testing"

func TestDetect(t *testing.T) {
	type vars map[string]string
	openmpi := vars{"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
		"OMPI_COMM_WORLD_LOCAL_SIZE": "2",
		"OMPI_COMM_WORLD_NODE_RANK":  "1", "PMIX_RANK": "2"}
	hydra := vars{"PMI_RANK": "1", "PMI_SIZE": "3", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "3", "PMI_FD": "9"}
	slurm := vars{"SLURM_STEP_ID": "0", "SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "6", "SLURM_LOCALID": "1", "SLURM_GTIDS": "4,5",
		"SLURM_NTASKS": "99"}
	join := func(all ...vars) vars {
		sum := vars{}
		for _, v := range all {
			for k, x := range v {
				sum[k] = x
			}
		}
		return sum
	}
	for _, test := range []struct {
		name string
		env  vars
		want Launch
		ok   bool
	}{
		{"nothing", vars{}, Launch{}, false},
		{"Open MPI", openmpi, Launch{"openmpi", 2, 4, 0, 2}, true},
		{"hydra", hydra, Launch{"pmi", 1, 3, 1, 3}, true},
		{"PALS", vars{"PALS_RANKID": "3", "PMI_SIZE": "8", "PALS_LOCAL_RANKID": "1", "PMI_LOCAL_SIZE": "2"}, Launch{"pmi", 3, 8, 1, 2}, true},
		{"Flux", vars{"FLUX_TASK_RANK": "0", "FLUX_JOB_SIZE": "2", "FLUX_TASK_LOCAL_ID": "0"}, Launch{"flux", 0, 2, 0, 0}, true},
		{"jsrun", vars{"JSM_NAMESPACE_RANK": "1", "JSM_NAMESPACE_SIZE": "2", "JSM_NAMESPACE_LOCAL_RANK": "1", "JSM_NAMESPACE_LOCAL_SIZE": "2"},
			Launch{"jsm", 1, 2, 1, 2}, true},
		{"srun", slurm, Launch{"slurm", 5, 6, 1, 2}, true},
		{"srun with pmi2", join(slurm, vars{"PMI_RANK": "5", "PMI_SIZE": "6"}), Launch{"pmi", 5, 6, 0, 0}, true},
		{"srun with pmix", join(slurm, vars{"PMIX_RANK": "5"}), Launch{"slurm", 5, 6, 1, 2}, true},
		{"a batch script", vars{"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_JOB_ID": "7"}, Launch{}, false},
		{"mpirun within a batch script", join(openmpi, vars{"SLURM_PROCID": "0"}), Launch{"openmpi", 2, 4, 0, 2}, true},
		{"mpirun within a step", join(slurm, openmpi), Launch{"openmpi", 2, 4, 0, 2}, true},
		{"hydra within a step", join(slurm, hydra), Launch{"pmi", 1, 3, 1, 3}, true},
		{"mpirun within hydra", join(hydra, openmpi), Launch{"openmpi", 2, 4, 0, 2}, true},
		{"RANK", vars{"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, Launch{"env", 1, 2, 1, 2}, true},
		{"RANK within a step", join(slurm, vars{"RANK": "1", "WORLD_SIZE": "2"}), Launch{"slurm", 5, 6, 1, 2}, true},
		{"RANK alone", vars{"RANK": "1"}, Launch{}, false},
		{"not a number", vars{"PMI_RANK": "x", "PMI_SIZE": "3", "RANK": "0", "WORLD_SIZE": "1"}, Launch{"env", 0, 1, 0, 0}, true},
		{"rank beyond size", vars{"PMI_RANK": "3", "PMI_SIZE": "3"}, Launch{}, false},
		{"negative", vars{"PMI_RANK": "-1", "PMI_SIZE": "3"}, Launch{}, false},
		{"local rank beyond local size", join(hydra, vars{"MPI_LOCALRANKID": "3"}), Launch{"pmi", 1, 3, 0, 0}, true},
	} {
		got, ok := Detect(func(name string) (string, bool) { v, ok := test.env[name]; return v, ok })
		if got != test.want || ok != test.ok {
			t.Errorf("%s: got %+v, %v, want %+v, %v", test.name, got, ok, test.want, test.ok)
		}
	}
}
