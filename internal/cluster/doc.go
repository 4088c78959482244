// Package cluster holds the tests of jobs on several hosts and under Slurm. Its
// hosts are network namespaces of this machine, joined by a bridge, each with an
// ssh server, a name, processes and a /tmp of its own; that takes root. Nothing of
// them has a name outside the test, and all of it ends with the test's process.
package cluster
