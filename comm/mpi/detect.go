package mpi

import (
	"strconv"
	"strings"
)

// A Launch is what a launcher tells a rank about itself.
type Launch struct {
	Launcher   string // "openmpi", "pmi" (MPICH's hydra, PALS and others), "flux", "jsm", "slurm", "env" (RANK and WORLD_SIZE)
	Rank, Size int
	// LocalRank and LocalSize count the ranks of this host; both are 0 if unknown.
	LocalRank, LocalSize int
}

// contract is the variables of one launcher.
type contract struct {
	launcher             string
	rank, size           string
	localRank, localSize string
	only                 string // must be set too, if not ""
}

// contracts are in the order in which they count: a launcher started by
// another leaves the outer one's variables in the environment.
var contracts = [...]contract{
	{launcher: "openmpi", rank: "OMPI_COMM_WORLD_RANK", size: "OMPI_COMM_WORLD_SIZE", localRank: "OMPI_COMM_WORLD_LOCAL_RANK",
		localSize: "OMPI_COMM_WORLD_LOCAL_SIZE"},
	{launcher: "pmi", rank: "PMI_RANK", size: "PMI_SIZE", localRank: "MPI_LOCALRANKID", localSize: "MPI_LOCALNRANKS"},
	{launcher: "pmi", rank: "PALS_RANKID", size: "PMI_SIZE", localRank: "PALS_LOCAL_RANKID", localSize: "PMI_LOCAL_SIZE"},
	{launcher: "flux", rank: "FLUX_TASK_RANK", size: "FLUX_JOB_SIZE", localRank: "FLUX_TASK_LOCAL_ID"},
	{launcher: "jsm", rank: "JSM_NAMESPACE_RANK", size: "JSM_NAMESPACE_SIZE", localRank: "JSM_NAMESPACE_LOCAL_RANK",
		localSize: "JSM_NAMESPACE_LOCAL_SIZE"},
	// A batch script has SLURM_PROCID=0 without being a rank.
	{launcher: "slurm", rank: "SLURM_PROCID", size: "SLURM_STEP_NUM_TASKS", localRank: "SLURM_LOCALID", only: "SLURM_STEP_ID"},
	{launcher: "env", rank: "RANK", size: "WORLD_SIZE", localRank: "LOCAL_RANK", localSize: "LOCAL_WORLD_SIZE"},
}

// Detect returns what the environment says about this process as a rank; ok is
// false if it was not started as one. env is os.LookupEnv, or a table. A
// launcher whose rank and size are not two numbers, rank < size, is passed over.
func Detect(env func(string) (string, bool)) (l Launch, ok bool) {
	number := func(name string) (int, bool) {
		text, ok := env(name)
		if !ok || name == "" {
			return 0, false
		}
		n, err := strconv.Atoi(text)
		return n, err == nil && n >= 0
	}
	for _, c := range contracts {
		if c.only != "" {
			if _, ok := env(c.only); !ok {
				continue
			}
		}
		rank, ok := number(c.rank)
		size, both := number(c.size)
		if !ok || !both || rank >= size {
			continue
		}
		l := Launch{Launcher: c.launcher, Rank: rank, Size: size}
		localRank, ok := number(c.localRank)
		localSize, both := number(c.localSize)
		if c.launcher == "slurm" {
			if ids, ok := env("SLURM_GTIDS"); ok && ids != "" {
				localSize, both = strings.Count(ids, ",")+1, true
			}
		}
		if ok && both && localRank < localSize {
			l.LocalRank, l.LocalSize = localRank, localSize
		}
		return l, true
	}
	return Launch{}, false
}
