//go:build linux

package handover

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gorun-spmd/gorun/internal/depot"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/internal/snapshot"
	"github.com/gorun-spmd/gorun/launcher/exit"
	"github.com/gorun-spmd/gorun/launcher/hosts"
	"github.com/gorun-spmd/gorun/launcher/options"
	"github.com/gorun-spmd/gorun/launcher/supervisor"
)

// elasticGrace is what a launcher has to end the ranks of an attempt that has failed, before it is
// killed and the depots end what is left of them: the next attempt goes on from memory.
const elasticGrace = time.Second

// elasticHeed is for how many looks, ten in a second, a signal to one rank has to stand before it
// counts as the user's: a launcher that ends the ranks for the loss of a host kills them until then.
const elasticHeed = 20

// An elastic job on several hosts goes on after a failure, or with another number of ranks, from snapshots in the memory of its
// hosts. A host that is lost stays so until more ranks are wanted than the others have slots for.
type elastic struct {
	hosts    []hosts.Host // that are left
	memory   *os.File     // of this host, in which gorun scale asks for ranks
	progress supervisor.Progress
}

// elasticFits returns an error if snapshots cannot be kept for a job on several hosts.
func elasticFits(o *options.Options, remote bool, l hosts.Launcher, env func(string) (string, bool)) error {
	_, slurm := env("SLURM_JOB_ID")
	switch {
	case !remote:
		return fmt.Errorf("--elastic on this host alone: gorun starts the ranks itself, without --via")
	case l.System == hosts.Slurm:
		return fmt.Errorf("--elastic: Slurm ends with a step all that it has started, and so the memory for snapshots; " +
			"outside Slurm give --via openmpi or mpich, inside it -checkpoint to the program")
	case slurm:
		return fmt.Errorf("--elastic: in an allocation of Slurm's %s starts its ranks by Slurm, "+
			"which ends with a step all that it has started, and so the memory for snapshots", l)
	case len(o.Apps) > 1:
		return fmt.Errorf("--elastic on several hosts: with several programs nothing says which of them is to have fewer ranks " +
			"when a host is lost")
	case o.Output != "":
		return fmt.Errorf("--elastic on several hosts: with --output the ranks cannot tell gorun how far they have come; " +
			"leave one of the two out")
	}
	return nil
}

// elasticAttempts starts the job, and again as long as it makes progress between failures. It returns
// gorun's exit status.
func (h *Handover) elasticAttempts(paths []string) (status int, err error) {
	if name := h.list.open(); name != "" {
		return 0, exit.With(2, fmt.Errorf("--elastic: %s says no slots, and nothing says which ranks are there; give them", name))
	}
	hub, err := depot.NewHub()
	if err != nil {
		return 0, err
	}
	defer hub.Close()
	h.elastic = &elastic{hosts: h.list.hosts, memory: hub.Memory(), progress: supervisor.Progress{Best: -1}}
	wanted := 0 // ranks, by gorun scale
	for began := time.Now(); ; h.number++ {
		h.again(began)
		contract, err := hub.Contract(h.number)
		if err == nil {
			err = snapshot.Started(h.elastic.memory, os.Getpid(), h.opts.Size())
		}
		if err == nil && wanted > 0 { // there are as many, or a host is lost and there cannot be
			err = snapshot.Want(h.elastic.memory, 0)
		}
		if err != nil {
			return 0, err
		}
		status, o, err := h.attempt(paths, []string{depot.Var + "=" + contract.Encode()})
		if err != nil {
			return 0, err
		}
		wanted = 0
		if o.Reason == supervisor.Resized && o.Signal == 0 {
			wanted, _ = snapshot.Wanted(h.elastic.memory)
		}
		if wanted == 0 && (status == 0 || !mayGoOn(o) || h.opts.Restarts > 0 && !h.restartsLeft(h.console.Say)) {
			return status, nil
		}
		h.suspended += o.Suspended
		ended := make(chan []string, 1)
		go func(next int) { ended <- hub.End(next) }(h.number + 1)
		select {
		case alive := <-ended:
			if !h.goesOn(alive, wanted, h.console.Say) {
				return status, nil
			}
		case s := <-h.signals:
			h.console.Say("not starting the job again: %v has come", s)
			if number, ok := s.(syscall.Signal); ok {
				status = 128 + int(number)
			}
			return status, nil
		}
	}
}

// resize is the supervisor's: it reports whether another number of ranks is wanted.
func (h *Handover) resize(say func(format string, args ...any)) bool {
	return supervisor.Resizes(h.elastic.memory, h.opts.Size(), h.opts.Grace, func(wanted int) string {
		if !h.fits(h.list.hosts, wanted) {
			return "there are no slots for them on " + hostNames(h.list.hosts)
		}
		return ""
	}, say)
}

// fits reports whether hosts have slots for a number of ranks.
func (h *Handover) fits(list []hosts.Host, ranks int) bool {
	_, err := h.places(list, ranks)
	return err == nil
}

// places returns on which of some hosts each of a number of ranks is.
func (h *Handover) places(list []hosts.Host, ranks int) ([]int, error) {
	by, _ := hosts.ParseMapBy(h.opts.MapBy) // the first attempt has shown that it is one
	return hosts.Assign(list, ranks, hosts.Options{By: by, Oversubscribe: h.opts.Hosts.Oversubscribe, Cores: h.cores})
}

// goesOn decides, after an attempt that failed, or that ended because another number of ranks is wanted, whether another follows
// on the hosts of which alive has the names, and with how many ranks. It says what it does. wanted is 0 after a failure.
func (h *Handover) goesOn(alive []string, wanted int, say func(format string, args ...any)) bool {
	e, ranks := h.elastic, h.opts.Size()
	lost, gone := h.lost(alive)
	begun, kept := h.words.progress()
	if len(lost) > 0 {
		say("%s lost: %s does not answer, or its memory is gone", strings.Join(lost, ", "), were(lost))
		e.hosts = slices.DeleteFunc(slices.Clone(e.hosts), func(it hosts.Host) bool { return slices.Contains(lost, it.Name) })
	}
	next, least := ranks, max(1, h.opts.MinRanks)
	if wanted > 0 {
		next, least = wanted, min(wanted, least)
		e.progress.Best = max(e.progress.Best, kept)
		if len(lost) == 0 && !h.fits(e.hosts, wanted) {
			e.hosts = h.list.hosts
			say("trying all hosts again: those that are left have no slots for %s", ints.Counted(wanted, "rank"))
		}
	} else {
		e.progress.Failed(kept)
		if h.opts.Elastic == options.ElasticShrink {
			next = max(ranks-max(1, gone), min(ranks, least))
		}
	}
	for next >= least && !h.fits(e.hosts, next) {
		next--
	}
	unreached, text, _ := h.words.unreached(e.hosts)
	switch {
	case unreached != "":
		say("not starting the job again: %s cannot be reached", unreached)
		return false
	case wanted == 0 && !begun && len(lost) == 0 && text == "" && h.words.ownWord() && len(h.words.missing(ranks)) == 0: // as for a wrong flag
		say("not starting the job again: it failed by its own word before its first step")
		return false
	case e.progress.Barren() != "":
		say("not starting the job again: %s", e.progress.Barren())
		return false
	case len(e.hosts) == 0 || next < least:
		say("not starting the job again: no slots are left for %s", ints.Counted(least, "rank"))
		return false
	}
	h.opts.Apps[0].Ranks = next
	with := ""
	if next != ranks {
		with = " with " + ints.Counted(next, "rank")
	}
	from := "; no snapshot is whole, so ranks without a checkpoint begin anew"
	if e.progress.Best >= 0 {
		from = ", from the last snapshot that is whole on the hosts that are left"
	}
	say("starting the job again%s, restart %d%s", with, h.number+1, from)
	return true
}

// were is "it" or "each of them".
func were(names []string) string {
	if len(names) == 1 {
		return "it"
	}
	return "each of them"
}

// lost returns the hosts, by their names in the list, whose ranks ran on none of those that are
// alive, by their own names, or that ssh has found to be down, and how many ranks that were.
func (h *Handover) lost(alive []string) (names []string, ranks int) {
	places, err := h.places(h.elastic.hosts, h.opts.Size())
	if err != nil {
		return nil, 0
	}
	unreached, _, down := h.words.unreached(h.elastic.hosts)
	for rank, at := range places {
		name := h.elastic.hosts[at].Name
		if host, ok := h.words.hostOf(rank); ok && !slices.Contains(alive, host) || down && name == unreached {
			ranks++
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names, ranks
}

// progress returns whether rank 0 has begun its first step, and the step of the last snapshot.
func (w *words) progress() (begun bool, kept int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.begun, w.kept
}

// ownWord reports whether a rank failed by itself, and neither by a signal nor because of others, or
// none has started.
func (w *words) ownWord() bool {
	it, ok := w.first()
	return w.started() == 0 || ok && it.Kind == job.Ended && !(it.Status > 128 && w.gone(it.Rank))
}

// hostOf returns the name that the host of a rank gives itself, if the rank has started there.
func (w *words) hostOf(rank int) (host string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.ranks[rank]
	if !ok || !s.started {
		return "", false
	}
	return s.host, true
}
