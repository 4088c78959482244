// Package launcher is the command gorun: it starts N copies of a program, the
// ranks of a job, joins their output, watches them, and reports the first
// failure.
//
//	gorun -np 4 ./train -steps 100
//
// # Four kinds of process
//
//	gorun ────── keeper ────── guardian ──┬── rank 0 ── its own children
//	 (launcher)                           ├── rank 1
//	                                      └── …
//
// The launcher reads the command line, has the program built if it is Go source,
// makes the shared memory of the job (package internal/control), reads the
// ranks' output and decides what happens. The guardian forks the ranks and reaps whatever
// ends below it. The keeper waits for the guardian's end. See package guardian for how they
// talk, and for why no process outlives gorun though any two of the three are killed at
// once. If all three are, the ranks still die, but what they have started may live on.
//
// The shared memory has no name, the built program lies in Go's build cache, and the
// guardian of a build makes and removes the build's temporary folder, so nothing is left
// in a file system either.
//
// # Output
//
// gorun passes on every byte that its ranks write. The output of a single rank goes on
// as it comes. Where several streams share a file, their lines do not mix: a line of up
// to 1 MiB is written when it has ended. A longer line is written in parts, and the
// other streams wait for its end, for a second at most; then their lines go between its
// parts. If a stream ends without a newline, one is added before the next line of
// another stream, but not in a file of --output. --tag-output and --timestamp-output
// write before each line and nowhere else, so a line of any length has one tag. On a
// terminal, a line that is redrawn, as a progress bar is, keeps its last state alone.
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
// silent ends the job, and so does a rank that fails while the others go on. A rank
// that is killed, or exits by itself, says nothing: of that Open MPI and Slurm tell in
// their own messages, and under MPICH's mpiexec the shell through which ranks start.
// Ranks on other hosts start through a shell in any case, which tells where the folder
// or the program is missing. Ranks that wait for each other are not seen, nor shown by
// gorun top. MPICH's mpiexec is sometimes killed by SIGPIPE (141), without gorun too,
// if a rank ends within moments of its start, and its ranks, if they are killed as they
// start, can leave small files in /dev/shm.
//
// A host file's hosts without slots have as many as Open MPI counts cores there, or Slurm
// CPUs, and one under MPICH; this machine's cores count for this machine alone.
//
// Slurm keeps ranks and allocation when srun is killed. So a process of its own session,
// the canceller, holds a pipe with gorun and the guardian; when both have ended and srun
// has not ended by itself, it cancels the job, or inside an allocation the step alone, by
// a name that only this job has. Nothing cancels it if the canceller is killed too.
//
// # Hangs
//
// Once a second the watchdog reads in the control segment who waits for whom, in every
// communicator and in asynchronous calls too. Ranks that wait for each other in a
// circle, or for one that has ended, end the job: gorun prints what each rank is at,
// and the ranks to blame print their stacks. Within one communicator that takes two
// looks. A circle over several communicators has to stand for five, and is none while
// a goroutine of a rank computes, sleeps, reads, or waits for a channel: it may yet make
// the call that another rank waits for. A rank that is in no call for ten looks is asked
// the same, and ends the job if its goroutines only wait for each other. Stacks do not show
// timers, so a receiver may yet get something, and is left to --hang-timeout, but a wait for a
// lock or a sync.WaitGroup that only a time.AfterFunc would end is taken as one for ever.
// --on-deadlock ignore turns this off.
//
// If nothing moves for --hang-timeout the job ends too. Movement is that a call on a
// communicator of several ranks begins or ends, that runtime.SetStep or runtime.Saved
// is called, or that a rank ends. The default limit holds only while a rank waits in a
// call, because ranks may compute for long; one that was given holds at any time, if all
// ranks use package runtime. Where another launcher starts the ranks, rank 0 looks for hangs of
// both kinds (see package runtime).
//
// # Elastic jobs
//
// With --elastic an attempt that has failed is followed by another, on as many ranks (restart),
// or without those that died (shrink, --min-np at least), or with as many as gorun scale asks
// for. The launcher owns the memory of the snapshots (internal/snapshot), hands its descriptor to
// the ranks of each attempt, and reads in it how far the job has come and how many ranks are
// wanted: gorun scale writes that there, by way of /proc. A job that is scaled is asked to end as
// by SIGTERM, so that package train keeps a snapshot of the step it has come to. Three attempts
// in a row without a snapshot of a later step end the job, and so does an attempt that fails by a
// rank's own word before its first step, if there was no snapshot or the number of ranks is new.
//
// On several hosts a process on each, which outlives the ranks there, owns the memory
// (internal/depot), and a host's snapshots are copied to the next host. After an attempt that has
// failed gorun asks each of these processes to end the ranks of its host; the hosts that do not
// answer are lost, and the next attempt is handed over for those that are left. Hosts that have no ranks of it still give the parts of
// the last snapshot that they have.
//
// # Traces
//
// With --trace each rank keeps its last calls in a file without a name, of a fixed size
// (see control.TraceLog). gorun reads the files when the ranks are gone, however they
// went, and writes them as one. Ranks that another launcher starts compare their clocks,
// and rank 0 writes the file.
//
// # Other systems than Linux
//
// On macOS and Windows gorun starts the program once, as a process whose goroutines are the
// ranks (GORUN_GOROUTINES, see package runtime), and says so. Flags that take a process for
// each rank are refused by name.
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
