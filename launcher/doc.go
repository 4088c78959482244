// Package launcher is the command gorun: it starts N copies of a program, the
// ranks of a job, joins their output, watches them, and reports the first
// failure.
//
//	gorun -np 4 ./train -steps 100
//
// # Three kinds of process
//
//	gorun ──────── guardian ──┬── rank 0 ── its own children
//	 (launcher)               ├── rank 1
//	                          └── …
//
// The launcher reads the command line, has the program built if it is Go source,
// makes the shared memory of the job (package internal/control), reads the
// ranks' output and decides what happens. The guardian is the same binary,
// started again. It forks the ranks and reaps whatever ends below it; it decides
// nothing. They talk over a socket whose end is the other's death: the launcher
// sends a spec, then commands; the guardian sends events.
//
// # Why nothing outlives gorun
//
// Each rank has a parent-death signal, so it dies with the guardian. The guardian
// is a child subreaper, so a process whose parent died becomes its child, wherever
// it moved (setsid, double fork); it kills its children until there are none. It
// does so when all ranks have ended, when told to, and when the launcher's end of
// the socket closes, which the kernel does for a launcher killed by SIGKILL. The
// launcher is a subreaper too and sweeps in the same way if the guardian is killed.
// The shared memory has no name, the built program lies in Go's build cache, and
// the guardian of a build makes and removes the build's temporary folder, so nothing
// is left in a file system either.
//
// # Several hosts
//
// Where ranks are to run on other hosts (--hostfile, --host, or a batch system's job
// of several hosts), or --via names a launcher, the installed mpirun, mpiexec.hydra
// or srun starts them. Package launcher/hosts writes its command line; it runs under
// a guardian as one rank does, so that signals, --timeout and --grace hold, and none
// of its processes or files is left on this host. What gorun knows of such a job is
// what its ranks tell, if they use package runtime (job.Word), beside the launcher's
// exit status: so a failure has a rank, its host and its error, a host that falls
// silent ends the job, and so does a rank that fails while the others go on. Ranks on
// other hosts start through a shell, which tells where the folder or the program is
// missing. But ranks that wait for each other are not seen, nor shown by
// gorun top. MPICH's mpiexec is sometimes killed by SIGPIPE (141), without gorun too,
// if a rank ends within moments of its start, and its ranks, if they are killed as they
// start, can leave small files in /dev/shm.
//
// # Hangs
//
// Once a second the watchdog reads in the control segment who waits for whom, in every
// communicator and in asynchronous calls too. Ranks that wait for each other in a
// circle, or for one that has ended, end the job: gorun prints what each rank is at,
// and the ranks to blame print their stacks. A rank that computes is not one of them,
// however long, and neither is one that sleeps beside an asynchronous call; if nothing
// at all moves for --hang-timeout while ranks wait, the job ends too.
//
// # Traces
//
// With --trace each rank keeps its last calls in a file without a name, of a fixed size
// (see control.TraceLog). gorun reads the files when the ranks are gone, however they
// went, and writes them as one. Ranks that another launcher starts compare their clocks,
// and rank 0 writes the file.
//
// # Plan, print, execute
//
// A command line becomes a plan (which rank runs what, where, with which
// environment and CPUs), which --dry-run prints, and which an attempt carries
// out: one guardian, one segment, one supervisor, one outcome. Nothing of an
// attempt is kept for the next.
//
// The supervisor is the only place that decides: it selects over the guardian's
// events, signals and one deadline, and can be tested without a process.
package launcher
