package options

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/launcher/hosts"
)

// Hosts holds the flags about hosts and launchers.
type Hosts struct {
	File          string // --hostfile
	Format        hosts.Format
	List          string // --host
	Via           string // one of hosts.Vias; "": an installed launcher
	Oversubscribe bool
}

// Given reports whether the command line names hosts or another launcher.
func (h *Hosts) Given() bool { return h.File != "" || h.List != "" || h.Via != "" }

// define adds the flags about hosts.
func (h *Hosts) define(f *flag.FlagSet) {
	f.Func("hostfile", "", text(&h.File))
	f.Func("hostfile-format", "", func(s string) (err error) {
		h.Format, err = hosts.ParseFormat(s)
		return hosts.Reason(err)
	})
	f.Func("host", "", text(&h.List))
	f.Func("via", "", func(s string) error {
		if !slices.Contains(hosts.Vias(hosts.Launchers()), s) {
			return fmt.Errorf("%q is no launcher; give %s", s, viaNames())
		}
		h.Via = s
		return nil
	})
	f.BoolVar(&h.Oversubscribe, "oversubscribe", h.Oversubscribe, "")
}

// viaNames returns "openmpi, mpich or slurm".
func viaNames() string {
	vias := hosts.Vias(hosts.Launchers())
	last := len(vias) - 1
	return strings.Join(vias[:last], ", ") + " or " + vias[last]
}

// validate checks that flags fit each other.
func (h *Hosts) validate() error {
	switch {
	case h.File != "" && h.List != "":
		return errors.New("--hostfile and --host: give one of them")
	case h.Format != hosts.Auto && h.File == "":
		return errors.New("--hostfile-format: there is no --hostfile")
	}
	return nil
}
