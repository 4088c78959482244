package hosts

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Limits on what a file can ask for, so that a damaged one costs no memory.
const (
	maxHosts = 65536   // entries of a list
	maxSlots = 1 << 20 // slots of one entry
	maxName  = 255     // bytes of a host's name
)

// A Host is one entry of a host list. A list may name a host more than once:
// the order of its entries is the order of the ranks.
type Host struct {
	Name string
	User string // the user to log in as; "": ssh's default
	Port int    // port of the ssh server; 0: ssh's default

	// Slots is how many ranks the host should get. If SlotsGiven is false,
	// Slots is 0, and the host has as many slots as cores.
	Slots      int
	SlotsGiven bool
	MaxSlots   int // the most ranks that the host may ever get; 0: no limit
}

// String returns the host in Open MPI's grammar, such as
// "root@node1 slots=2 max_slots=4".
func (h Host) String() string {
	var b strings.Builder
	if h.User != "" {
		b.WriteString(h.User + "@")
	}
	b.WriteString(h.Name)
	if h.SlotsGiven {
		b.WriteString(" slots=" + strconv.Itoa(h.Slots))
	}
	if h.MaxSlots > 0 {
		b.WriteString(" max_slots=" + strconv.Itoa(h.MaxSlots))
	}
	if h.Port > 0 {
		b.WriteString(" port=" + strconv.Itoa(h.Port))
	}
	return b.String()
}

// Slots returns the sum of the slots of list. An entry without slots counts as cores.
func Slots(list []Host, cores int) int {
	n := 0
	for _, h := range list {
		n += h.slots(cores)
	}
	return n
}

// slots returns h.Slots, or cores if slots were not given, but at most h.MaxSlots.
func (h Host) slots(cores int) int {
	n := cores
	if h.SlotsGiven {
		n = h.Slots
	}
	if h.MaxSlots > 0 {
		n = min(n, h.MaxSlots)
	}
	return n
}

// sameAs reports whether both entries mean the same machine and login.
func (h Host) sameAs(other Host) bool {
	return h.Name == other.Name && h.User == other.User && h.Port == other.Port
}

// A Position is a place in a file or in an environment variable. File is then the variable's
// name.
type Position struct {
	File         string
	Line, Column int // from 1; columns count bytes
}

// String prints the position as "nodes.txt:3:7".
func (p Position) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

// An Error says what is wrong with a host list, where, and what to do.
type Error struct {
	Position
	What string // the mistake, and the remedy
}

// Error returns position and text in one line.
func (e *Error) Error() string { return e.Position.String() + ": " + e.What }

// A Warning points to text whose meaning the reader of the file may not expect.
type Warning struct {
	Position
	What string
}

// String returns position and text in one line.
func (w Warning) String() string { return w.Position.String() + ": " + w.What }

// errorf makes an *Error at p.
func (p Position) errorf(format string, args ...any) error {
	return &Error{p, fmt.Sprintf(format, args...)}
}

// warningf makes a Warning at p.
func (p Position) warningf(format string, args ...any) Warning {
	return Warning{p, fmt.Sprintf(format, args...)}
}

// login splits s, "[user@]host", and checks both parts.
func (p Position) login(s string) (user, host string, err error) {
	host = s
	if at := strings.IndexByte(s, '@'); at >= 0 {
		user, host = s[:at], s[at+1:]
		if user == "" {
			return "", "", p.errorf("%s: no user before @; write user@host", show(s))
		}
		if err := p.user(user); err != nil {
			return "", "", err
		}
		p.Column += at + 1
	}
	if len(host) > maxName {
		return "", "", p.errorf("%s: a host's name of %d bytes; names have at most %d", show(host), len(host), maxName)
	}
	if isIPv6(host) {
		return user, host, nil
	}
	bad := strings.IndexFunc(host, outsideName)
	switch {
	case host == "":
		return "", "", p.errorf("no host's name here; write one host a line")
	case host[0] == '^':
		return "", "", p.errorf("%s: hosts cannot be excluded in the file; leave the line out", show(host))
	case host[0] == '+':
		return "", "", p.errorf("%s: relative hosts need Open MPI's own allocation; write the host's name", show(host))
	case host[0] == '-':
		return "", "", p.errorf("%s: a host's name does not start with -, ssh would take it for an option", show(host))
	case strings.HasPrefix(host, "[") && isIPv6(strings.Trim(host, "[]")):
		return "", "", p.errorf("%s: an IPv6 address in brackets; write %s, or better the host's name", show(host), strings.Trim(host, "[]"))
	case bad < 0:
		return user, host, nil
	}
	p.Column += bad
	switch host[bad] {
	case ',':
		return "", "", p.errorf("%s: a comma; write one host a line", show(host))
	case '[', ']':
		return "", "", p.errorf("%s: brackets are for Slurm's node lists; write every host's name", show(host))
	case '\r':
		return "", "", p.errorf(`%s: a carriage return; convert the file with sed -i 's/\r$//'`, show(host))
	case '@':
		return "", "", p.errorf("%s: a second @; write user@host", show(s))
	}
	return "", "", p.errorf("%s: not a host's name; letters, digits and . _ - are", show(host))
}

// user checks a user's name.
func (p Position) user(s string) error {
	switch {
	case s == "":
		return p.errorf("no user's name here; write username=NAME or NAME@host")
	case strings.IndexFunc(s, outsideName) >= 0 || s[0] == '-' || len(s) > maxName:
		return p.errorf("%s: not a user's name; letters, digits and . _ - are", show(s))
	}
	return nil
}

// outsideName reports whether r cannot be in the name of a host or user.
func outsideName(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return false
	}
	return r != '.' && r != '_' && r != '-'
}

// isIPv6 reports whether s is an address such as fd99::2, with a zone or without.
func isIPv6(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Is6() && !strings.Contains(s, "%")
}

// count reads a decimal number from lowest to highest.
func (p Position) count(what, s string, lowest, highest int) (int, error) {
	if s == "" {
		return 0, p.errorf("%s without a number; give one from %d to %d", what, lowest, highest)
	}
	if strings.Trim(s, "0123456789") != "" {
		return 0, p.errorf("%s %s: not a number; give one from %d to %d, in plain digits", what, show(s), lowest, highest)
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < lowest || n > highest {
		return 0, p.errorf("%s %s: out of range; give %d to %d", what, show(s), lowest, highest)
	}
	return n, nil
}

// show returns s for an error's text: short, and quoted if it is not plain.
func show(s string) string {
	if len(s) > 40 {
		s = s[:37] + "..."
	}
	if q := strconv.QuoteToASCII(s); q[1:len(q)-1] != s || s == "" {
		return q
	}
	return s
}
