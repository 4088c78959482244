// Package hosts decides where the ranks of a job go: it reads every kind of host
// file that clusters use, assigns ranks to hosts, and writes the command line
// of the launcher that starts them there.
//
// But for [ReadFile] it is pure: it starts nothing, opens nothing and asks no network. It takes
// files as bytes and the environment as a function, and returns commands and files as values
// that can be printed.
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
//	Plain     node1                       one line for each host; repeats count
//	PBS       node1                       one line for each slot
//	SGE       node1 4 all.q UNDEFINED
//	LSF       node1 4 node2 4
//	Slurm     node[1-4,7]
//
// [Detect] tells them apart. Every error and warning carries file, line and
// column (in bytes, from 1). The package warns of text that a launcher would silently
// misread, or refuses it. An example is node1:2 in Open MPI's grammar, where it is a host of
// that literal name. The grammars are those of Open MPI 4.1.4 and
// 5.0.7, hydra 4.0.2 and Slurm 22.05, found by trying.
package hosts
