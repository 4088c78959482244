//go:build linux

package handover

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/launcher/hosts"
	"github.com/gorun-spmd/gorun/launcher/options"
)

// TestStarter runs the script as a launcher does that makes rank 3.
func TestStarter(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	const token = "TOKEN"
	for _, c := range []struct {
		name, dir string
		argv      []string
		status    int
		says      string // "": its output is out
		out       string
	}{
		{"all there", dir, []string{"/bin/sh", "-c", `pwd; echo "$@"; exit 4`, "name", "a b", "it's"}, 4, "", dir + "\na b it's\n"},
		{"no folder", dir + "/no", []string{"/bin/sh"}, 1, "there is no folder " + dir +
			"/no on this host; make it, or name one that all hosts have with --wdir", ""},
		{"no program", dir, []string{dir + "/no"}, 127, "there is no program " + dir + "/no on this host; put it where all hosts have it", ""},
		{"not executable", dir, []string{text}, 126,
			text + " may not be executed on this host; chmod +x it, or mount its file system without noexec", ""},
		{"a folder", dir, []string{dir}, 127, "there is no program " + dir + " on this host; put it where all hosts have it", ""},
	} {
		for _, words := range []*words{nil, newWords(false)} {
			argv, from := (&Handover{words: words}).started(c.dir, c.argv)
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Dir, cmd.Env = from, append(os.Environ(), "PMI_RANK=3")
			if words != nil {
				cmd.Env = append(cmd.Env, job.WordVar+"="+token)
			}
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, _ := cmd.Output() // the status says it
			status := cmd.ProcessState.ExitCode()
			if words == nil {
				if (status == 0) != (c.status == 0) || string(out) != c.out || (stderr.Len() == 0) != (c.says == "") {
					t.Errorf("%s, without words: status %d, output %q, %q", c.name, status, out, stderr.String())
				}
				continue
			}
			if status != c.status || string(out) != c.out {
				t.Errorf("%s: status %d and %q, want %d and %q", c.name, status, out, c.status, c.out)
			}
			got, ok := job.ParseWord(token, strings.TrimSuffix(stderr.String(), "\n"))
			want := job.Word{Kind: job.Ended, Rank: 3, Status: c.status, Host: host, Text: c.says}
			if c.says == "" {
				want = job.Word{Kind: job.Placed, Rank: 3, Host: host}
			}
			if !ok || got != want {
				t.Errorf("%s: got %+v of %q, want %+v", c.name, got, stderr.String(), want)
			}
		}
	}
}

// TestWaitingStarter has a rank end in several ways, which it tells in one word after that of the start, and
// ends as the rank did.
func TestWaitingStarter(t *testing.T) {
	for _, c := range []struct {
		script string
		kind   job.WordKind
		status int
	}{
		{"exit 0", job.Gone, 0},
		{"exit 3", job.Gone, 3},
		{"kill -9 $$", job.Gone, 137},
		{"kill -SEGV $$", job.Gone, 139},
		{"kill -USR1 $PPID; exit 5", job.Gone, 5},
		{"kill -TERM $PPID; exit 6", job.Dragged, 6},
	} {
		h := &Handover{opts: &options.Options{}, words: newWords(false), launcher: installed{Launcher: hosts.Hydra()}}
		argv, from := h.started("/", []string{"/bin/sh", "-c", c.script})
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir, cmd.Env = from, append(os.Environ(), "PMI_RANK=3", job.WordVar+"=TOKEN")
		var stderr strings.Builder
		cmd.Stderr = &stderr
		_ = cmd.Run() // the status says it
		ended := cmd.ProcessState.Sys().(syscall.WaitStatus)
		status := ended.ExitStatus()
		if ended.Signaled() {
			status = 128 + int(ended.Signal())
		}
		begin, end, _ := strings.Cut(stderr.String(), "\n")
		placed, _ := job.ParseWord("TOKEN", begin)
		got, ok := job.ParseWord("TOKEN", strings.TrimSuffix(end, "\n"))
		if placed.Kind != job.Placed || placed.Rank != 3 {
			t.Errorf("%s: begins with %q", c.script, begin)
		}
		if !ok || got.Kind != c.kind || got.Status != c.status || got.Rank != 3 || status != c.status {
			t.Errorf("%s: ended with %d, said %q", c.script, status, stderr.String())
		}
	}
}

// A signal that all ranks get, and that comes to the shell of one which has just ended, does
// not change how the shell ends.
func TestSignalAfterTheRank(t *testing.T) {
	h := &Handover{opts: &options.Options{}, words: newWords(false), launcher: installed{Launcher: hosts.Hydra()}}
	for range 20 {
		argv, from := h.started("/", []string{"/bin/sh", "-c", "trap : ALRM; echo up; read line; exit 0"})
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir, cmd.Env = from, append(os.Environ(), "PMI_RANK=3", job.WordVar+"=TOKEN")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 8)); err != nil { // the shell waits now
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait() // its state tells
			close(ended)
		}()
		in.Close()
		for over := false; !over; {
			select {
			case <-ended:
				over = true
			default:
				_ = cmd.Process.Signal(job.StopSignal) // it may have ended
			}
		}
		if !cmd.ProcessState.Success() {
			t.Fatalf("the shell ended with %v", cmd.ProcessState)
		}
	}
}
