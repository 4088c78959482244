// Package handover gives a job to the installed mpirun, mpiexec.hydra or srun.
//
// Package hosts writes the command line of the launcher, which is a value there, in a file of
// its own. This package chooses the launcher, runs it under a guardian as one rank is run, and
// listens to what the ranks tell of themselves among their standard error (package job, Word): so
// that a failure has a rank and a host, a host that falls silent ends the job, and so does a
// rank that fails where its launcher lets the others go on.
//
//	New ── which launcher, for which hosts; nil: gorun starts the ranks itself
//	DryRun ── prints its files and its command line
//	Run ── carries it out and returns gorun's exit status
package handover
