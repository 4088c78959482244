package exit

import (
	"strings"
	"syscall"
	"testing"
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
