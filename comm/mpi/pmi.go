//go:build linux && !nolibs

package mpi

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// pmiVariable holds the number of the descriptor by which MPICH and the launcher of a rank talk in lines, PMI-1.
const pmiVariable = "PMI_FD"

// mpich40 matches what MPICH 4.0 calls itself.
var mpich40 = regexp.MustCompile(`^MPICH Version:\s*4\.0\b`)

// hangsOverUCX reports whether MPI_Finalize of the library that calls itself version often does not return where ranks are
// on several hosts, of programs in C too. There UCX flushes each TCP connection, for which the rank at its other end has to
// call UCX too. In MPICH 4.0 the ranks that are through wait for the others in PMI, where they do not. A build that is told
// of a PMI may speak another one.
func hangsOverUCX(version string) bool {
	return mpich40.MatchString(version) && strings.Contains(version, "ch4:ucx") && !strings.Contains(version, "--with-pmi")
}

// leaveByPMI ends this rank's part for its launcher without MPI_Finalize, when every rank is about to. Till then progress is
// called again and again: it has the library send what it holds.
func leaveByPMI(fd int, progress func()) error {
	for _, step := range [][2]string{{"cmd=barrier_in\n", "cmd=barrier_out"}, {"cmd=finalize\n", "cmd=finalize_ack"}} {
		if _, err := unix.Write(fd, []byte(step[0])); err != nil {
			return fmt.Errorf("%s=%d: write: %w", pmiVariable, fd, err)
		}
		var answer []byte
		for !strings.HasSuffix(string(answer), "\n") {
			progress()
			var more [256]byte
			n, _, err := unix.Recvfrom(fd, more[:], unix.MSG_DONTWAIT)
			switch {
			case err == unix.EAGAIN || err == unix.EINTR:
				time.Sleep(napClosing)
			case err != nil:
				return fmt.Errorf("%s=%d: read: %w", pmiVariable, fd, err)
			case n == 0:
				return fmt.Errorf("%s=%d: the launcher has closed it", pmiVariable, fd)
			}
			answer = append(answer, more[:max(n, 0)]...)
		}
		if !strings.HasPrefix(string(answer), step[1]) {
			return fmt.Errorf("%s=%d: got %q, want %q", pmiVariable, fd, answer, step[1])
		}
	}
	return nil
}
