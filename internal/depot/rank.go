//go:build linux

package depot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Ensure makes sure that this host has a depot. One rank of each host calls it.
func Ensure(c *Contract) error {
	if conn, err := net.DialUnix("unix", nil, socket(c.ID)); err == nil {
		return conn.Close()
	}
	cmd := exec.Command(c.Gorun)
	cmd.Args = []string{processName}
	cmd.Env = append(os.Environ(), Var+"="+c.Encode())
	out, err := cmd.Output() // until the process that stays has closed it
	text := strings.TrimSpace(string(out))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no gorun at %s on this host, which would hold snapshots for --elastic; put it where all hosts have it",
			c.Gorun)
	case err == nil && string(out) == ready:
		return nil
	case err != nil && text == "":
		text = err.Error()
	}
	return fmt.Errorf("starting %s on this host, which holds snapshots for --elastic: %s", c.Gorun, text)
}

// All returns the depots of all hosts that gorun has not lost, those that have no rank of this attempt among them.
func All(c *Contract) (list []Info, err error) {
	conn, err := dial(c.Addresses, c.Port, c.Secret, forDepots, c.Attempt)
	if err == nil {
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience)) // an error shows in the next call
		err = json.NewDecoder(conn).Decode(&list)
	}
	if err != nil {
		return nil, fmt.Errorf("asking gorun for the depots of all hosts: %w", err)
	}
	return list, nil
}

// A Local is a rank's hold on the depot of its host.
type Local struct {
	File *os.File // the memory
	Info Info
	conn *net.UnixConn // by it the depot knows that the rank is there
}

// Join connects this process to the depot of its host.
func Join(c *Contract) (*Local, error) {
	l, err := join(c)
	if err != nil {
		return nil, fmt.Errorf("the depot for snapshots on this host: %w", err)
	}
	return l, nil
}

func join(c *Contract) (*Local, error) {
	conn, err := net.DialUnix("unix", nil, socket(c.ID))
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(patience)) // an error shows in the next call
	text, rights := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(4))
	n, m, _, _, err := conn.ReadMsgUnix(text, rights) // with MSG_CMSG_CLOEXEC
	l := &Local{conn: conn}
	var messages []unix.SocketControlMessage
	if err == nil {
		err = json.Unmarshal(text[:n], &l.Info)
	}
	if err == nil {
		messages, err = unix.ParseSocketControlMessage(rights[:m])
	}
	var fds []int
	if err == nil && len(messages) == 1 {
		fds, err = unix.ParseUnixRights(&messages[0])
	}
	if err == nil && len(fds) != 1 {
		err = fmt.Errorf("it hands over %d descriptors, not the one of its memory", len(fds))
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	l.File = os.NewFile(uintptr(fds[0]), "snapshots")
	return l, nil
}
