//go:build linux

package guardian

import (
	"encoding/gob"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/gorun-spmd/gorun/launcher/hosts"
)

// A Spec is the first message to the guardian: all it needs to start the ranks.
type Spec struct {
	Apps  []App
	Ranks []Rank
	Temp  []string     // folders that the guardian makes before all else, and removes at the end
	Files []hosts.File // files that the guardian writes in these folders
	Top   int          // the Ranks name descriptors 3 to Top-1; the guardian marks them close-on-exec
}

// An App is one program of the job, with the settings that its ranks share. Strings are bytes,
// as in the kernel; they need not be UTF-8.
type App struct {
	Path string   // the file to execute
	Argv []string // Argv[0] as the user wrote it
	Env  []string // without the contract of package job
	Dir  string
}

// A Rank is one process to start.
type Rank struct {
	App     int      // index in Spec.Apps
	Env     []string // the contract of package job, and other variables that differ between ranks
	CPUs    []int    // the CPUs on which the rank may run; nil for all
	Stdio   [3]int   // descriptors, in the guardian, of its standard streams
	Inherit []int    // descriptors, in the guardian, that become its 3, 4, …
}

// An Action says what the guardian is to do.
type Action uint8

// The actions.
const (
	SignalGroups  Action = iota + 1 // send Signal to the process group of each rank
	SignalRanks                     // send Signal to the ranks' own processes only
	SignalRank                      // send Signal to the process of Rank, and continue it if it is stopped
	ContinueRanks                   // send SIGCONT to the process groups of the ranks that are stopped
	StopRanks                       // stop all; RanksStopped answers it
	KillAll                         // kill every descendant with SIGKILL, now and until none is left
)

// A Command goes from the launcher to the guardian.
type Command struct {
	Action Action
	Signal syscall.Signal
	Rank   int
}

// An EventKind says what has happened.
type EventKind uint8

// The kinds of events.
const (
	RankStarted  EventKind = iota + 1
	RankRefused            // Rank could not be started: Errno
	RankEnded              // Rank has ended with Status
	RanksStopped           // the answer to StopRanks
	AllGone                // no descendant is left; the guardian exits
)

// An Event goes from the guardian to the launcher.
type Event struct {
	Kind   EventKind
	Rank   int
	PID    int
	Status syscall.WaitStatus
	CPU    time.Duration // the processor time of the rank that has ended
	Errno  syscall.Errno
	At     time.Time
}

// A conn sends messages of one side, from any goroutine.
type conn struct {
	mu  sync.Mutex
	enc *gob.Encoder
}

func newConn(w io.Writer) *conn { return &conn{enc: gob.NewEncoder(w)} }

// send writes one message. An error means that the other side is gone.
func (c *conn) send(message any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.enc.Encode(message)
}
