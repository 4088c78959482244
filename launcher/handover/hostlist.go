//go:build linux

package handover

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/launcher/hosts"
	"github.com/gorun-spmd/gorun/launcher/options"
)

// A hostList is where the ranks may go.
type hostList struct {
	hosts    []hosts.Host // nil: this host, nobody said otherwise
	system   hosts.Format // of the batch system that gave them; Auto: none
	warnings []hosts.Warning
}

// findHosts reads the hosts that the user named, or else those that a batch system has
// given to this job.
func findHosts(h *options.Hosts, env func(string) (string, bool)) (l hostList, err error) {
	switch {
	case h.File != "":
		text, err := hosts.ReadFile(h.File)
		if err != nil {
			return l, fmt.Errorf("--hostfile %s: %v", h.File, errors.Unwrap(err))
		}
		l.hosts, l.warnings, err = hosts.Parse(h.File, text, h.Format)
		return l, err
	case h.List != "":
		l.hosts, err = hosts.ParseList(h.List)
		return l, err
	}
	a, ok, err := hosts.FromEnv(env, hosts.ReadFile)
	if err != nil || !ok {
		return l, err
	}
	if h.Via == "" && len(distinct(a.Hosts)) < 2 {
		return l, nil
	}
	return hostList{a.Hosts, a.System, a.Warnings}, nil
}

// distinct returns the names of list, each once.
func distinct(list []hosts.Host) []string {
	var names []string
	for _, h := range list {
		if !slices.Contains(names, h.Name) {
			names = append(names, h.Name)
		}
	}
	return names
}

// onlyHere reports whether every host of the list is this one, whose own name is
// self.
func (l *hostList) onlyHere(self string) bool {
	short := func(name string) string {
		name, _, _ = strings.Cut(name, ".")
		return name
	}
	return !slices.ContainsFunc(l.hosts, func(h hosts.Host) bool {
		local := slices.Contains([]string{"localhost", "127.0.0.1", "::1", self, short(self)}, h.Name) || short(h.Name) == self
		return !local || h.User != "" || h.Port != 0
	})
}

// count fills in the slots of the hosts that do not say theirs, as the launcher counts
// them: 1, or the CPUs that it knows. It leaves them open for a launcher that counts the
// cores itself.
func (l *hostList) count(launcher hosts.Launcher, ask hosts.Ask) {
	var cpus map[string]int
	if launcher.CPUs != nil && l.open() != "" {
		cpus = launcher.CPUs(distinct(l.hosts), ask)
	}
	for i := range l.hosts {
		if it := &l.hosts[i]; !it.SlotsGiven && !launcher.CountsCores {
			it.Slots, it.SlotsGiven = max(1, cpus[it.Name]), true
			if it.MaxSlots > 0 {
				it.Slots = min(it.Slots, it.MaxSlots)
			}
		}
	}
}

// merge makes one entry of those of a host, so that a rank's number tells its host.
func (l *hostList) merge() {
	var merged []hosts.Host
	for _, it := range l.hosts {
		i := slices.IndexFunc(merged, func(other hosts.Host) bool { return other.Name == it.Name })
		if i < 0 {
			merged = append(merged, it)
			continue
		}
		merged[i].Slots += it.Slots
		merged[i].SlotsGiven = merged[i].SlotsGiven && it.SlotsGiven
		if merged[i].MaxSlots > 0 {
			merged[i].MaxSlots += it.MaxSlots
		}
	}
	l.hosts = merged
}

// open returns a host that does not say its slots, "" if there is none.
func (l *hostList) open() string {
	for _, h := range l.hosts {
		if !h.SlotsGiven {
			return h.Name
		}
	}
	return ""
}

// fit gives a program without -np a rank for each slot of the list, and refuses
// more ranks than there are slots. cores stands for those of hosts that do not say; it
// is 0 if only the launcher, a program of the given name, knows them, and refuses too many
// ranks itself.
func (l *hostList) fit(o *options.Options, cores int, launcher string) error {
	if l.hosts == nil {
		return nil
	}
	by, err := hosts.ParseMapBy(o.MapBy)
	if err != nil {
		return fmt.Errorf("--map-by %s: over hosts give slot or node", o.MapBy)
	}
	if host := l.open(); host != "" && cores == 0 {
		if o.Apps[0].All {
			return fmt.Errorf("%s says no slots, and only %s counts the cores there: give -np, or slots in the host file", host, launcher)
		}
		return nil
	}
	if a := &o.Apps[0]; a.All {
		a.Ranks = max(1, hosts.Slots(l.hosts, cores))
	}
	_, err = hosts.Assign(l.hosts, o.Size(), hosts.Options{By: by, Oversubscribe: o.Hosts.Oversubscribe, Cores: cores})
	return hosts.Reason(err)
}
