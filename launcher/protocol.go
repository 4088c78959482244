package launcher

import (
	"encoding/gob"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/gorun-spmd/gorun/launcher/hosts"
)

// A spec is the first message to the guardian: all it needs to start the ranks.
type spec struct {
	Apps  []app
	Ranks []rank
	Temp  []string     // folders that the guardian makes before all else, and removes at the end
	Files []hosts.File // that the guardian writes, in these
	Top   int          // descriptors 3 to Top-1 are named below; the guardian marks them close-on-exec
}

// An app is one program of the job with what its ranks share. Strings are bytes,
// as the kernel has them; they need not be UTF-8.
type app struct {
	Path string   // the file to execute
	Argv []string // Argv[0] as the user wrote it
	Env  []string // without the contract
	Dir  string
}

// A rank is one process to start.
type rank struct {
	App     int      // index in spec.Apps
	Env     []string // the contract, and what else differs between ranks
	CPUs    []int    // the CPUs it may run on; nil for all
	Stdio   [3]int   // descriptors, in the guardian, of its standard streams
	Inherit []int    // descriptors, in the guardian, that become its 3, 4, …
}

// An action is what a command asks for.
type action uint8

const (
	signalGroups action = iota + 1 // send Signal to the process group of each rank
	signalRanks                    // send Signal to the ranks' own processes only
	signalRank                     // send Signal to the process of Rank, and let it run
	stopRanks                      // stop all; answered by stopped
	killAll                        // kill every descendant with SIGKILL, now and until none is left
)

// A command goes from the launcher to the guardian.
type command struct {
	Action action
	Signal syscall.Signal
	Rank   int
}

// An eventKind is what an event tells.
type eventKind uint8

const (
	rankStarted  eventKind = iota + 1
	rankRefused            // Rank could not be started: Errno
	rankEnded              // Rank has ended with Status
	ranksStopped           // the answer to stopRanks
	allGone                // no descendant is left; the guardian exits
)

// An event goes from the guardian to the launcher.
type event struct {
	Kind   eventKind
	Rank   int
	PID    int
	Status syscall.WaitStatus
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
