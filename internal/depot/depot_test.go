//go:build linux

package depot

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/internal/snapshot"
)

// rankDoes is what a test binary is started with to be a rank, and says what it does.
const rankDoes = "GORUN_DEPOT_TEST_RANK"

const (
	idles   = "idles"   // it joins, and waits
	ensures = "ensures" // it ensures two times that there is a depot, and ends
)

func TestMain(m *testing.M) {
	if status, ok := Main(os.Args); ok {
		os.Exit(status)
	}
	what := os.Getenv(rankDoes)
	if what == "" {
		os.Exit(m.Run())
	}
	c, err := ParseContract(os.Getenv(Var))
	switch {
	case err != nil:
	case what == ensures:
		err = errors.Join(Ensure(&c), Ensure(&c)) // the second finds it there
	default:
		_, err = Join(&c)
	}
	fmt.Println(err)
	if what == idles {
		select {}
	}
}

func newHub(t *testing.T) (*Hub, Contract) {
	t.Helper()
	h, err := NewHub()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		select {
		case <-h.closed:
		default:
			h.Close()
		}
	})
	c, err := h.Contract(3)
	if err != nil {
		t.Fatal(err)
	}
	return h, c
}

func TestContract(t *testing.T) {
	_, c := newHub(t)
	again, err := ParseContract(c.Encode())
	if err != nil || again.ID != c.ID || again.Secret != c.Secret || again.Attempt != 3 || again.Gorun != c.Gorun ||
		!slices.Equal(again.Addresses, c.Addresses) {
		t.Errorf("%+v is read %+v, %v", c, again, err)
	}
	for _, bad := range []string{"", "x", "e30", c.Encode()[:40]} {
		if _, err := ParseContract(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// Ranks of the host write into the same memory that others read and write over TCP.
func TestMemoryOfAnotherHost(t *testing.T) {
	h, c := newHub(t)
	l, err := Join(&c)
	if err != nil {
		t.Fatal(err)
	}
	info := l.Info
	info.Addresses = append([]string{"127.0.0.1"}, info.Addresses...)
	r := NewRemote(info, &c)
	mine := bytes.Repeat([]byte("0123456789abcde"), 200_000) // more than one transfer
	if _, err := r.WriteAt(mine, 1<<41+77); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(mine))
	for _, m := range []snapshot.Memory{l.File, r} {
		clear(got)
		if _, err := m.ReadAt(got, 1<<41+77); err != nil || !bytes.Equal(got, mine) {
			t.Errorf("%T: other bytes, %v", m, err)
		}
	}
	if _, err := r.WriteAt(mine[:9], 1<<62); err == nil || !strings.Contains(err.Error(), "not in the memory") {
		t.Errorf("behind the end: %v", err)
	}
	l.conn.Close() // or this process is a rank that ends
	for left := 1; left > 0; {
		h.own.mu.Lock()
		left = len(h.own.ranks)
		h.own.mu.Unlock()
	}
	h.End(3)
	if _, err := r.ReadAt(got, 0); err != nil {
		t.Errorf("after the end of an attempt before: %v", err)
	}
	h.End(4)
	for _, late := range []*Remote{r, NewRemote(info, &c)} {
		if _, err := late.WriteAt(got, 0); err == nil {
			t.Error("one of an attempt that is over still writes")
		}
	}
	stranger := NewRemote(info, &Contract{})
	if err := stranger.Connect(); err == nil || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("another secret: %v", err)
	}
}

// A copy counts on the other host when all of it is there, and is what the rank has written.
func TestCopyToAnotherHost(t *testing.T) {
	_, c := newHub(t)
	l, err := Join(&c)
	if err != nil {
		t.Fatal(err)
	}
	own, err := snapshot.Create()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	w := snapshot.Begin(own, 5, 1, 40, 2, 3)
	data := bytes.Repeat([]byte("state"), 500_000)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Finish([]byte("what it is")); err != nil {
		t.Fatal(err)
	}
	info := l.Info
	info.Addresses = []string{"127.0.0.1"}
	if err := snapshot.Copy(own, NewRemote(info, &c), 5, 2); err != nil {
		t.Fatal(err)
	}
	entries, err := snapshot.Entries(l.File)
	if err != nil || len(entries) != 1 || entries[0].Rank != 2 || entries[0].Step != 40 {
		t.Fatalf("%+v, %v", entries, err)
	}
	got := make([]byte, len(data))
	if _, err := l.File.ReadAt(got, snapshot.Join([][]snapshot.Entry{{
		{Sequence: 5, Ranks: 1, Bytes: 1}}})[0].Parts[0].At+2*snapshot.SlotBytes); err != nil || !bytes.Equal(got, data) {
		t.Errorf("other bytes, %v", err)
	}
}

// A rank that is stopped ends when gorun asks for the end of an attempt, and one that is not
// connected is not touched.
func TestEndOfAnAttempt(t *testing.T) {
	h, c := newHub(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), rankDoes+"="+idles, Var+"="+c.Encode())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	word := make([]byte, len("<nil>\n"))
	if _, err := io.ReadFull(out, word); err != nil || string(word) != "<nil>\n" {
		t.Fatalf("the rank says %q, %v", word, err)
	}
	if alive := h.End(4); !slices.Equal(alive, []string{h.own.info.Host}) {
		t.Errorf("%q answer", alive)
	}
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the rank ends with %v", err)
	}
}

// A depot that is a process of its own is ready when Ensure returns, is no child of the caller,
// answers gorun, has no descriptor of the caller's, and ends with gorun.
func TestProcess(t *testing.T) {
	h, c := newHub(t)
	c.Addresses = []string{"127.0.0.1"}
	c.ID += "-other" // as on another host, whose sockets have names of their own
	c.Gorun = os.Args[0]
	var ends [2]int // which are not closed on exec, as those of C libraries
	if err := unix.Pipe(ends[:]); err != nil {
		t.Fatal(err)
	}
	rank := exec.Command(os.Args[0]) // the depot kills who speaks with it at the end of an attempt
	rank.Env = append(os.Environ(), rankDoes+"="+ensures, Var+"="+c.Encode())
	if said, err := rank.CombinedOutput(); err != nil || string(said) != "<nil>\n" {
		t.Fatalf("%v, %s", err, said)
	}
	if alive := h.End(4); len(alive) != 2 {
		t.Fatalf("%q answer", alive)
	}
	all, err := All(&c)
	if err != nil || len(all) != 2 || all[0].ID == all[1].ID || all[1].ID != h.own.info.ID || all[0].Host != all[1].Host ||
		all[0].Port == all[1].Port {
		t.Fatalf("%+v, %v: want this host's depot and the process", all, err)
	}
	if _, err := All(&Contract{}); err == nil || !strings.Contains(err.Error(), "asking gorun for the depots") {
		t.Errorf("without the secret: %v", err)
	}
	awaitDepots(t, c.ID, 1) // the second says that there is one, and then ends
	unix.Close(ends[1])
	if n, err := unix.Read(ends[0], make([]byte, 1)); n != 0 || err != nil { // it waits if another has the end
		t.Errorf("%d bytes, %v", n, err)
	}
	unix.Close(ends[0])
	h.Close()
	awaitDepots(t, c.ID, 0)
}

// awaitDepots waits until n processes hold a job's memory.
func awaitDepots(t *testing.T, id string, n int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); len(depots(t, id)) != n; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d processes, want %d", len(depots(t, id)), n)
		}
	}
}

// depots returns the processes that hold a job's memory.
func depots(t *testing.T, id string) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		text, _ := os.ReadFile(path) // it may have ended, or be another user's
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		_, value, _ := strings.Cut(string(text), Var+"=")
		value, _, _ = strings.Cut(value, "\x00")
		if c, err := ParseContract(value); err == nil && c.ID == id && strings.HasPrefix(string(line), processName) {
			pids = append(pids, filepath.Dir(path))
		}
	}
	return pids
}

// The copy of 26 MB of a rank's state to the depot of another host, by way of this one's network.
func BenchmarkCopy(b *testing.B) {
	h, err := NewHub()
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	c, err := h.Contract(0)
	if err != nil {
		b.Fatal(err)
	}
	own, err := snapshot.Create()
	if err != nil {
		b.Fatal(err)
	}
	defer own.Close()
	w := snapshot.Begin(own, 1, 0, 0, 0, 1)
	if _, err := w.Write(make([]byte, 26<<20)); err != nil {
		b.Fatal(err)
	}
	if err := w.Finish(nil); err != nil {
		b.Fatal(err)
	}
	info := h.own.info
	info.Addresses = []string{"127.0.0.1"}
	r := NewRemote(info, &c)
	b.SetBytes(26 << 20)
	b.ReportAllocs()
	for b.Loop() {
		if err := snapshot.Copy(own, r, 1, 0); err != nil {
			b.Fatal(err)
		}
	}
}
