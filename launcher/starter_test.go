package launcher

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/internal/job"
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
		{"no folder", dir + "/no", []string{"/bin/sh"}, 1, "there is no folder " + dir + "/no on this host; make it, or name one that all hosts have with --wdir", ""},
		{"no program", dir, []string{dir + "/no"}, 127, "there is no program " + dir + "/no on this host; put it where all hosts have it", ""},
		{"not executable", dir, []string{text}, 127, "there is no program " + text + " on this host; put it where all hosts have it", ""},
		{"a folder", dir, []string{dir}, 127, "there is no program " + dir + " on this host; put it where all hosts have it", ""},
	} {
		for _, words := range []*words{nil, newWords(false)} {
			argv, from := (&handover{words: words}).started(c.dir, c.argv)
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
			if want := (job.Word{Kind: job.Ended, Rank: 3, Status: c.status, Host: host, Text: c.says}); ok != (c.says != "") || ok && got != want {
				t.Errorf("%s: got %+v of %q, want %+v", c.name, got, stderr.String(), want)
			}
		}
	}
}
