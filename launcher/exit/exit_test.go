package exit

import (
	"strings"
	"syscall"
	"testing"

	"github.com/gorun-spmd/gorun/internal/testenv"
)

func TestRemedied(t *testing.T) {
	for errno, want := range map[syscall.Errno]string{
		syscall.EMFILE: "ulimit -n",
		syscall.EFBIG:  "ulimit -f",
		syscall.EAGAIN: "start fewer ranks",
	} {
		if got := Remedied(errno); !strings.HasPrefix(got.Error(), errno.Error()+"; ") || !strings.Contains(got.Error(), want) {
			t.Errorf("%q, want its remedy: %q", got, want)
		}
	}
	if got := Remedied(syscall.ENOENT); got != error(syscall.ENOENT) {
		t.Errorf("%q has no remedy", got)
	}
}

// TestCheckTasks: what is refused is what could not start, and the error has the limit, what is left of it, and the remedy.
func TestCheckTasks(t *testing.T) {
	root := testenv.Folder(t, map[string]string{"proc/self/cgroup": "0::/\n",
		"sys/fs/cgroup/pids.max": "48\n", "sys/fs/cgroup/pids.current": "8\n"})
	if err := CheckTasks(root, 4, RankTasks); err != nil {
		t.Errorf("4 ranks: %v", err)
	}
	if err := CheckTasks(root, 8, 1); err != nil {
		t.Errorf("8 ranks of a process each: %v", err)
	}
	err := CheckTasks(root, 8, RankTasks)
	if err == nil {
		t.Fatal("8 ranks are not refused")
	}
	for _, want := range []string{"8 ranks need 52 ", "and 40 can be made", "is 48 (pids.max ", "raise it, or start fewer ranks"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q has no %q", err, want)
		}
	}
}
