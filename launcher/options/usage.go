package options

// Usage is the first page of help. It fits one screen of 80 columns and 24 lines.
const Usage = `usage: gorun [flags] program [arguments] [: [flags] program [arguments]]...
       gorun plan|doctor|top|scale N|diff A B|report TRACE|help hosts|--version
gorun starts one program as N ranks: an executable, a Go package or .go files.
  -np N, -n N         number of ranks; without it one for each usable core
  --wdir DIR, -x NAME[=value]  the ranks' working directory, a variable for them
  --stdin WHO         who reads standard input: a rank's number (0), all or none
  --tag-output, --timestamp-output  put [rank]<stream>: or the time before lines
  --output DIR, --profile DIR  rank N's output to DIR/rank.N; profiles for pprof
  --trace FILE, --report FILE  what each rank did, for Perfetto; as a page
  --dashboard :PORT   that page while the job runs, for this machine's browsers
  --same-bits         sums of floats do not depend on -np: slower, the same bits
  --digest FILE, --digest-every K, --digest-ops  digests of steps, for diff
  --bind-to WHAT, --map-by WHAT  each core, the default, or none; core or socket
  --timeout TIME      end the job after TIME (90, 90s, 1m30s), exit status 124
  --hang-timeout TIME end it (123) when nothing moves for TIME (5m; 0: never)
  --on-deadlock WHAT  ranks wait for each other: end (default, 123); or ignore
  --gpus WHAT         0,2: tensors on these; auto: on what is there; none
  --grace TIME        from asking ranks to end until they are killed (5s)
  --max-restarts N, --elastic restart  start a failed job again; from memory;
  --elastic shrink, --min-np N  with fewer ranks, N at least; gorun scale: more
  --dry-run, --report-bindings  print what would start; the ranks' CPUs
The exit status is that of the first rank that failed, 128 + its signal's number
if one killed it, 130 after Ctrl-C, which cancels the ranks' context; a second
Ctrl-C kills them. Builds obey Go's variables: GOFLAGS=-race gorun -np 2 ./train
`

// HostsUsage is the second page of help, of the same size.
const HostsUsage = `usage: gorun --hostfile FILE [flags] program [arguments]
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
launcher has them. --bind-to is none; core binds each rank to one core. Rank 0
finds hangs, and the exit status is then 1. A host that is not heard of for 9 s
ends the job, unless --hang-timeout is 0; --elastic goes on without it. Ranks
there end within 15 s (GORUN_HOST_TIMEOUT). Ranks without runtime.Main do not,
and Open MPI kills those 1 s after Ctrl-C, whatever --grace is. The exit status
is that of the rank that failed, if it could tell, and else the launcher's:
MPICH's gives a bare signal number, and lets ranks without MPI go on when one
fails.
`
