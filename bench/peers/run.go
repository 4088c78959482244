//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A line is one result: the fields that all programs print, and those that only some print.
type line struct {
	Name        string  `json:"name"`
	NP          int     `json:"np"`
	NS          float64 `json:"ns"`
	OpNS        float64 `json:"op_ns"` // of bench/ops, whose batches differ in length
	Bytes       *int    `json:"bytes"` // of bench/comm, whose names do not have it
	Who         string  `json:"who"`   // a variant of the program, a column of its own
	Unsupported string  `json:"unsupported"`
}

// key is the name of the case, the same in all programs.
func (l line) key() string {
	if l.Bytes != nil {
		return fmt.Sprintf("%s/%d", l.Name, *l.Bytes)
	}
	return l.Name
}

// run starts the program's processes and returns what the first prints. When one
// fails, or outer is done, all are killed with their children.
func (p *program) run(outer context.Context) ([]line, error) {
	ctx, cancel := context.WithCancel(outer)
	defer cancel()
	ranks := p.ranks()
	var out bytes.Buffer
	problems := make([]tail, len(ranks))
	errs := make([]error, len(ranks))
	var wg sync.WaitGroup
	for i, c := range ranks {
		if i == 0 {
			c.Stdout = &out
		}
		c.Stderr = &problems[i]
		wg.Go(func() {
			if errs[i] = supervise(ctx, c); errs[i] != nil {
				errs[i] = fmt.Errorf("%w: %s", errs[i], problems[i].last())
				cancel()
			}
		})
	}
	wg.Wait()
	lines, err := parse(&out)
	if late := context.Cause(outer); late != nil {
		return lines, late
	}
	return lines, errors.Join(append(errs, err)...)
}

// supervise runs a command in a process group of its own, which is killed when
// ctx is done.
func supervise(ctx context.Context, c *exec.Cmd) error {
	if c.SysProcAttr == nil {
		c.SysProcAttr = &syscall.SysProcAttr{}
	}
	c.SysProcAttr.Setpgid = true
	c.WaitDelay = time.Second
	if err := c.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) })
	defer stop()
	return c.Wait()
}

// parse reads the lines that are JSON objects with a name. Other lines are messages of
// libraries.
func parse(r io.Reader) ([]line, error) {
	var lines []line
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var l line
		if strings.HasPrefix(s.Text(), "{") && json.Unmarshal(s.Bytes(), &l) == nil && l.Name != "" {
			if l.OpNS > 0 {
				l.NS = l.OpNS
			}
			lines = append(lines, l)
		}
	}
	return lines, s.Err()
}

// tail keeps the end of the text that is written to it.
type tail struct{ text []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-4096):]
	return len(p), nil
}

// last returns the last line that is not blank.
func (t *tail) last() string {
	lines := strings.Split(strings.TrimSpace(string(t.text)), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
