//go:build linux

package cluster

import (
	"bytes"
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var harms = flag.Int("cluster.harms", 1, "how often an elastic job is harmed in each way; 1: in some of the ways")

// state finds what the example says of the state that it ends with.
var state = regexp.MustCompile(`"state_sha256":"([0-9a-f]+)"`)

// An elastic job on several hosts goes on from snapshots in their memory when one of them is
// lost, on those that are left, and ends with the bits of a run that nothing happened to.
func TestElastic(t *testing.T) {
	beside(t)
	c := up(t, 3)
	build(t, c.dir)
	c.write("two", "node1 slots=2\nnode2 slots=2\n")
	c.write("three", "node1 slots=2\nnode2 slots=1\nnode3 slots=1\n")
	c.write("six", "node1 slots=2\nnode2 slots=2\nnode3 slots=2\n")
	learn := train(c.dir, "-steps", "60", "-json", "-snapshot", "3", "-metrics", filepath.Join(c.dir, stepsFile))
	alone, err := c.run(c.hosts[0], patience, nil, append([]string{"gorun", "-np", "2", "--same-bits"}, learn...)...)
	want := state.FindString(alone)
	if err != nil || want == "" {
		t.Fatalf("on one host: %v\n%s", err, alone)
	}
	t.Run("gorun is killed", func(t *testing.T) { c.loses(t, learn) })
	t.Run("a lost host serves again", func(t *testing.T) { c.returns(t, true, want, learn) })
	if *harms > 1 {
		t.Run("a lost host stays lost", func(t *testing.T) { c.returns(t, false, want, learn) })
	}
	t.Run("a host has no gorun", func(t *testing.T) { c.lacksGorun(t, learn) })
	for _, e := range []elasticCase{
		{"a rank is killed", "two", "openmpi mpich", []string{"--elastic", "restart"}, c.killRank(2),
			[]string{"restart 1, from the last snapshot"}},
		{"a rank is killed, shrink", "two", "", []string{"--elastic", "shrink"}, c.killRank(2), []string{"with 3 ranks, restart 1"}},
		{"a daemon is killed", "three", "openmpi", []string{"--elastic", "restart"}, c.killAll(2, "orted", "prted", "hydra_pmi_proxy"),
			[]string{"starting the job again, restart 1"}},
		{"a rank is killed, and another stopped", "two", "", []string{"--elastic", "restart"}, c.stopAndKill(2), []string{"restart 1"}},
		{"a host is cut off", "two", "openmpi", []string{"--elastic", "restart"}, func() { c.cable(2, "down") },
			[]string{"node2 lost", "with 2 ranks, restart 1"}},
		{"one of three is cut off", "three", "mpich", []string{"--elastic", "shrink"}, func() { c.cable(2, "down") },
			[]string{"node2 lost", "with 3 ranks, restart 1"}},
		{"all processes of a host are killed", "three", "", []string{"--elastic", "restart"},
			c.killAll(3, "train", "gorun", "orted", "prted", "hydra_pmi_proxy"), []string{"node3 lost", "with 3 ranks, restart 1"}},
		{"fewer ranks are wanted", "three", "openmpi", []string{"--elastic", "restart"}, c.scale(2, ""),
			[]string{"2 ranks wanted: ranks have", "with 2 ranks, restart 1, from the last snapshot"}},
		{"more ranks are wanted", "six", "mpich", []string{"--elastic", "shrink"}, c.scale(6, ""), []string{"with 6 ranks, restart 1"}},
		{"too many ranks are wanted", "two", "", []string{"--elastic", "restart"}, func() {
			c.scale(5, "does not go on with 5 ranks; it says why")()
			c.killRank(2)()
		}, []string{"5 ranks wanted, and refused: there are no slots for them on node1, node2", "restart 1"}},
	} {
		for _, via := range []string{"openmpi", "mpich"} {
			if *harms == 1 && !strings.Contains(e.once, via) {
				continue
			}
			t.Run(e.name+", "+via, func(t *testing.T) {
				for range *harms {
					c.goesOn(t, via, want, e, learn)
				}
			})
		}
	}
}

type elasticCase struct {
	name, hosts string
	once        string // the launchers with which it is tried where each harm comes once
	flags       []string
	harm        func()
	says        []string
}

// killRank returns a function that kills a rank of host k.
func (c *cluster) killRank(k int) func() {
	return func() {
		for _, it := range c.running(c.hosts[k-1], "train") {
			c.kill(it)
			return
		}
	}
}

// scale returns a function that asks, on the host of gorun, for a number of ranks. The answer is an error if one is given.
func (c *cluster) scale(ranks int, failure string) func() {
	return func() {
		out, err := c.run(c.hosts[0], patience, nil, "gorun", "scale", strconv.Itoa(ranks))
		if err == nil != (failure == "") || !strings.Contains(out, failure) {
			c.t.Errorf("gorun scale %d: %v: %s, want %q", ranks, err, out, failure)
		}
	}
}

// stopAndKill returns a function that stops a rank of host k, and the daemon there, and kills
// another rank.
func (c *cluster) stopAndKill(k int) func() {
	return func() {
		ranks := c.running(c.hosts[k-1], "train")
		c.signal(ranks[0], syscall.SIGSTOP)
		for _, it := range c.running(c.hosts[k-1], "orted", "prted", "hydra_pmi_proxy") {
			c.kill(it)
		}
		c.kill(ranks[1])
	}
}

// killAll returns a function that kills the processes of host k that have one of the names.
func (c *cluster) killAll(k int, names ...string) func() {
	return func() {
		for _, it := range c.running(c.hosts[k-1], names...) {
			c.kill(it)
		}
	}
}

// kill kills a process that running has returned.
func (c *cluster) kill(it string) { c.signal(it, syscall.SIGKILL) }

func (c *cluster) signal(it string, sig syscall.Signal) {
	_, number, _ := strings.Cut(it, " ")
	pid, err := strconv.Atoi(number)
	if err != nil {
		c.t.Fatal(err)
	}
	_ = syscall.Kill(pid, sig) // it may have ended
}

// goesOn does harm to a job after some snapshots, and compares its end.
func (c *cluster) goesOn(t *testing.T, via, want string, e elasticCase, learn []string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	args := append([]string{"gorun", "--hostfile", e.hosts, "--via", via, "-np", "4", "--same-bits"}, e.flags...)
	cmd, out := c.learning(ctx, t, append(args, learn...))
	time.Sleep(rand.N(50 * time.Millisecond)) // within or between the copies of snapshots
	began := time.Now()
	e.harm()
	defer c.cable(2, "up")
	c.await("the next attempt", func() bool { return strings.Contains(out.String(), "resumed at step") || ctx.Err() != nil })
	t.Logf("the ranks resumed %v after the harm", time.Since(began).Round(10*time.Millisecond))
	err := cmd.Wait()
	text := out.String()
	if got := state.FindString(text); err != nil || got != want {
		t.Errorf("%v, got %s, want %s; output:\n%s", err, got, want, text)
	}
	for _, s := range append([]string{`resumed at step \d+ from memory`}, e.says...) {
		if !regexp.MustCompile(s).MatchString(text) {
			t.Errorf("no %s in:\n%s", s, text)
		}
	}
	c.cable(2, "up")
	c.clean(t, c.hosts...)
}

// stepsFile is where a job that trains writes one line for each step.
const stepsFile = "steps.jsonl"

// learning starts a job that trains, and returns when it has made some steps.
func (c *cluster) learning(ctx context.Context, t *testing.T, command []string) (*exec.Cmd, *output) {
	t.Helper()
	_ = os.Remove(filepath.Join(c.dir, stepsFile)) // of the job before
	out := &output{}
	cmd := c.command(ctx, c.hosts[0], nil, command...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.await("some steps", func() bool {
		lines, _ := os.ReadFile(filepath.Join(c.dir, stepsFile)) // the job makes it
		return bytes.Count(lines, []byte("\n")) >= 10 || ctx.Err() != nil
	})
	return cmd, out
}

// loses kills gorun. Nothing of the job may be left on any host.
func (c *cluster) loses(t *testing.T, learn []string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd, out := c.learning(ctx, t, append([]string{"gorun", "--hostfile", "three", "-np", "4", "--elastic", "restart"}, learn...))
	for _, h := range c.hosts[1:] {
		if depots := c.running(h, "gorun"); len(depots) != 1 {
			t.Errorf("%q on %s, want the depot; output:\n%s", depots, h.name, out.String())
		}
	}
	for _, it := range c.running(c.hosts[0], "gorun") {
		c.kill(it)
	}
	_ = cmd.Wait() // it was killed
	c.clean(t, c.hosts...)
}

// returns cuts a host off, and asks for its ranks again. By then it is back, or is not.
func (c *cluster) returns(t *testing.T, back bool, want string, learn []string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd, out := c.learning(ctx, t, append([]string{"gorun", "--hostfile", "two", "--via", "mpich", "-np", "4", "--same-bits",
		"--elastic", "restart"}, learn...))
	resumed := func(times int) func() bool {
		return func() bool { return strings.Count(out.String(), "resumed at step") == times || ctx.Err() != nil }
	}
	c.cable(2, "down")
	defer c.cable(2, "up")
	c.await("the attempt without the host", resumed(1))
	last := "with 2 ranks, restart 3"
	if back {
		c.cable(2, "up")
		last = "with 4 ranks, restart 2"
	}
	c.scale(4, "")()
	c.await("the last attempt", resumed(2))
	err := cmd.Wait()
	text := out.String()
	if got := state.FindString(text); err != nil || got != want {
		t.Errorf("%v, got %s, want %s; output:\n%s", err, got, want, text)
	}
	for _, s := range []string{"node2 lost", "with 2 ranks, restart 1", "trying all hosts again", "with 4 ranks, restart 2", last} {
		if !strings.Contains(text, s) {
			t.Errorf("no %q in:\n%s", s, text)
		}
	}
	c.clean(t, c.hosts...)
}

// lacksGorun starts a gorun that only the first host has.
func (c *cluster) lacksGorun(t *testing.T, learn []string) {
	const gorun = "/tmp/only/here/gorun"
	if out, err := c.run(c.hosts[0], patience, nil, "sh", "-c", "mkdir -p /tmp/only/here && cp bin/gorun "+gorun); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := c.run(c.hosts[0], patience, nil, append([]string{gorun, "--hostfile", "two", "-np", "4", "--elastic", "restart"}, learn...)...)
	if err == nil || !strings.Contains(out, "there is no gorun at "+gorun+" on this host") ||
		!strings.Contains(out, "gorun: not starting the job again: it failed by its own word before its first step") {
		t.Errorf("%v, output:\n%s", err, out)
	}
	c.clean(t, c.hosts...)
}
