// Package cluster holds the tests of jobs on several hosts and under Slurm. A host is a set of
// namespaces of this machine, with an ssh server, a name, processes and a /tmp of its own. A
// bridge joins the hosts. Making them takes root. They are visible only inside the test, and end
// with the test's process.
package cluster
