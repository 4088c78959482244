//go:build linux && !nolibs

package mpi

import (
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestHangsOverUCX(t *testing.T) {
	const debian = "MPICH Version:\t4.0.2\nMPICH Device:\tch4:ucx\nMPICH configure:\t--with-pm=hydra --with-ucx=/usr"
	for version, want := range map[string]bool{
		debian: true,
		strings.Replace(debian, "4.0.2", "4.0", 1):                       true,
		strings.Replace(debian, "4.0.2", "4.2.1", 1):                     false,
		strings.Replace(debian, "4.0.2", "14.0.2", 1):                    false,
		strings.Replace(debian, "ch4:ucx", "ch4:ofi", 1):                 false,
		strings.Replace(debian, "--with-pm=hydra", "--with-pmi=pmi2", 1): false,
		"MPI VERSION    : CRAY MPICH version 8.1.25 ch4:ucx":             false,
		"Open MPI v4.1.4": false,
	} {
		if got := hangsOverUCX(version); got != want {
			t.Errorf("%q: got %t", version, got)
		}
	}
}

// A rank leaves when the launcher says that all are about to, and has the library send what it holds until then.
func TestLeaveByPMI(t *testing.T) {
	for _, test := range []struct{ barrier, finalize, want string }{
		{"cmd=barrier_out\n", "cmd=finalize_ack\n", ""},
		{"cmd=barrier_out rc=0\n", "cmd=finalize_ack\n", ""},
		{"cmd=barrier_out\n", "no\n", `PMI_FD=%: got "no\n", want "cmd=finalize_ack"`},
		{"", "", "PMI_FD=%: the launcher has closed it"},
	} {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		calls := 0
		answer := func(asked, line string) {
			var got [64]byte
			if n, err := unix.Read(fds[1], got[:]); err != nil || string(got[:n]) != asked {
				t.Errorf("%q, %v, want %q", got[:n], err, asked)
			}
			if line == "" {
				_ = unix.Shutdown(fds[1], unix.SHUT_WR)
				return
			}
			if _, err := unix.Write(fds[1], []byte(line)); err != nil {
				t.Error(err)
			}
		}
		err = leaveByPMI(fds[0], func() {
			switch calls++; calls {
			case 3:
				answer("cmd=barrier_in\n", test.barrier)
			case 4:
				answer("cmd=finalize\n", test.finalize)
			}
		})
		want := strings.ReplaceAll(test.want, "%", strconv.Itoa(fds[0]))
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%q, %q: got %v, want %q", test.barrier, test.finalize, err, want)
		}
		_ = unix.Close(fds[0])
		_ = unix.Close(fds[1])
	}
}
