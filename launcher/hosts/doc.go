// Package hosts says where the ranks of a job go: it reads every kind of host
// file that clusters use, assigns ranks to hosts, and writes the command line
// of the launcher that starts them there.
//
// It is pure: it starts nothing, opens nothing and asks no network. Files come
// in as bytes, the environment as a function, and what should be done goes out
// as values that can be printed.
//
// # From a file to a command
//
//	list, warnings, err := hosts.Parse("hostfiles/two-nodes", text, hosts.Auto)
//	places, err := hosts.Assign(list, 4, hosts.Options{})       // which rank goes where
//	h, err := hosts.NewHandover(hosts.OpenMPI4(), hosts.Job{    // mpirun's command line
//		Hosts: list, Folder: folder, Apps: []hosts.App{{Ranks: 4, Argv: argv}},
//	})
//	fmt.Print(h)                                                // --dry-run
//
// Without a file, [FromEnv] finds the hosts of a batch job (Slurm, PBS, Grid
// Engine, LSF) and [ParseList] reads --host a:2,b:2.
//
// # Formats
//
//	OpenMPI   node1 slots=4 max_slots=8   # comment
//	MPICH     node1:4
//	Plain     node1                       a host a line; repeats count
//	PBS       node1                       a host a line a slot
//	SGE       node1 4 all.q UNDEFINED
//	LSF       node1 4 node2 4
//	Slurm     node[1-4,7]
//
// [Detect] tells them apart. Every error and warning carries file, line and
// column (in bytes, from 1). What a launcher would take silently for something
// else, such as node1:2 in Open MPI's grammar, a host of that literal name
// there, is warned of or refused. The grammars were read off Open MPI 4.1.4 and
// 5.0.7, hydra 4.0.2 and Slurm 22.05.
package hosts
