package hosts

import (
	"fmt"
	"strconv"
	"strings"
)

// Print returns list in the grammar of format, which is OpenMPI, MPICH or PBS. Parse reads
// the same list back. A field that the grammar cannot express is an error. MPICH's file leaves
// MaxSlots out, because the ranks have been dealt out when it is written.
func Print(format Format, list []Host) (string, error) {
	fail := func(h Host, text string, args ...any) (string, error) {
		return "", fmt.Errorf("hosts: Print %v: %s: %s", format, show(h.Name), fmt.Sprintf(text, args...))
	}
	var b strings.Builder
	seen := map[string]bool{}
	for i, h := range list {
		if format == OpenMPI {
			if seen[h.Name] {
				return fail(h, "in two entries, and Open MPI takes slots once a host; merge them")
			}
			seen[h.Name] = true
			b.WriteString(h.String() + "\n")
			continue
		}
		if h.Port > 0 {
			return fail(h, "port %d cannot be said there; give the host a Port in ~/.ssh/config", h.Port)
		}
		if i > 0 && list[i-1].sameAs(h) {
			return fail(h, "in two entries next to each other; merge them")
		}
		if isIPv6(h.Name) && format == MPICH {
			return fail(h, "an IPv6 address would be read as a host and a count; give the host's name")
		}
		if !h.SlotsGiven || h.Slots == 0 {
			return fail(h, "without slots; leave it out or give it some")
		}
		login := h.Name
		if h.User != "" {
			login = h.User + "@" + h.Name
		}
		switch format {
		case MPICH:
			b.WriteString(h.Name + ":" + strconv.Itoa(h.Slots))
			if h.User != "" {
				b.WriteString(" user=" + h.User)
			}
			b.WriteByte('\n')
		case PBS:
			b.WriteString(strings.Repeat(login+"\n", h.Slots))
		default:
			return "", fmt.Errorf("hosts: Print: %v cannot be written; use openmpi, mpich or pbs", format)
		}
	}
	return b.String(), nil
}
