package hosts

import (
	"bytes"
	"net/netip"
	"strings"
)

// parseOpenMPI reads Open MPI's grammar:
//
//	line  = [user@]host { key "=" value }
//	key   = slots | cpu | count              how many ranks; once for each host
//	      | max-slots | slots_max | …        the most ranks; max joined by - or _, in either order
//	      | username | user-name | user_name
//	      | port
//
// Spaces, tabs, \v and \f may stand around "="; #, // and /* */ start comments.
// A host listed n times without slots has n slots. A host listed once without slots has max_slots
// slots, or as many as cores.
func parseOpenMPI(name string, text []byte) ([]Host, []Warning, error) {
	if bytes.HasPrefix(text, []byte("\xef\xbb\xbf")) {
		return nil, nil, Position{name, 1, 1}.errorf("a byte order mark; save the file as UTF-8 without one")
	}
	t := openMPITable{byName: map[string]int{}, byLabel: map[string]int{}}
	number, comment := 0, false
	for line := range bytes.Lines(text) {
		number++
		if i := bytes.IndexByte(line, '\r'); i >= 0 {
			return nil, nil, Position{name, number, i + 1}.errorf(`a carriage return; convert the file with sed -i 's/\r$//'`)
		}
		tokens := openMPITokens(name, number, stripComments(line, &comment))
		if len(tokens) == 0 {
			continue
		}
		e, err := t.line(tokens)
		if err == nil {
			err = t.add(e)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	list, err := t.hosts()
	return list, t.warnings, err
}

// openMPITokens cuts a line into words, with "=" a word of its own.
func openMPITokens(name string, number int, line []byte) []word {
	var tokens []word
	for _, w := range split(name, number, line, isSpace) {
		for w.text != "" {
			n := strings.IndexByte(w.text, '=')
			switch n {
			case 0:
				n = 1
			case -1:
				n = len(w.text)
			}
			tokens = append(tokens, word{w.Position, w.text[:n]})
			w.text = w.text[n:]
			w.Column += n
		}
	}
	return tokens
}

// openMPITable holds the hosts of the lines so far.
type openMPITable struct {
	entries  []openMPIEntry
	byName   map[string]int // index in entries
	byLabel  map[string]int // by first label: index of the first entry with a domain
	warnings []Warning
}

// An openMPIEntry is one line, or the lines of one host together.
type openMPIEntry struct {
	Host
	at, max Position // of the host, of its max_slots
	lines   int
	seen    map[openMPIKey]bool
}

// openMPIKey is the meaning of a key, which has several spellings.
type openMPIKey uint8

const (
	unknownKey openMPIKey = iota
	slotsKey
	maxKey
	userKey
	portKey
)

// openMPIKeyOf returns the meaning of a key as it is spelt in the file.
func openMPIKeyOf(s string) openMPIKey {
	switch strings.ReplaceAll(s, "_", "-") {
	case "slots", "cpu", "count":
		return slotsKey
	case "max-slots", "slots-max", "max-cpu", "cpu-max", "max-count", "count-max":
		return maxKey
	case "username", "user-name":
		return userKey
	case "port":
		return portKey
	}
	return unknownKey
}

// line reads the tokens of one line.
func (t *openMPITable) line(tokens []word) (openMPIEntry, error) {
	first := tokens[0]
	e := openMPIEntry{at: first.Position, lines: 1, seen: map[openMPIKey]bool{}}
	if len(tokens) > 1 && tokens[1].text == "=" || first.text == "=" {
		return e, first.errorf("no host before the first =; start the line with the host's name")
	}
	if first.text == "rank" && len(tokens) > 2 && digits(tokens[1].text) && tokens[2].text == "=" {
		return e, first.errorf("a line of a rank file; list hosts, such as: node1 slots=4")
	}
	var err error
	host, port, colon := strings.Cut(first.text, ":")
	if colon && digits(port) && !isIPv6(first.text[strings.IndexByte(first.text, '@')+1:]) {
		if e.User, e.Name, err = first.login(host); err != nil {
			return e, err
		}
		e.Name += ":" + port
		t.warnings = append(t.warnings, first.warningf("%s is a host of that name in Open MPI's grammar; "+
			"for %s slots write %s slots=%s, or say --hostfile-format mpich", show(first.text), port, show(host), port))
	} else if e.User, e.Name, err = first.login(first.text); err != nil {
		return e, err
	}
	for rest := tokens[1:]; len(rest) > 0; {
		key := rest[0]
		if len(rest) > 1 && rest[1].text == "=" {
			value := word{rest[1].Position, ""}
			value.Column++
			rest = rest[2:]
			if len(rest) > 0 && rest[0].text != "=" && !(len(rest) > 1 && rest[1].text == "=" && openMPIKeyOf(rest[0].text) != unknownKey) {
				value, rest = rest[0], rest[1:]
			}
			if err := e.set(key, value); err != nil {
				return e, err
			}
			continue
		}
		switch {
		case key.text == "=":
			return e, key.errorf("no key before this =; write slots=N")
		case openMPIKeyOf(key.text) != unknownKey:
			return e, key.errorf("%s without a value; write %s=N", key.text, key.text)
		}
		return e, key.errorf("%s after the host; write one host a line, or key=value", show(key.text))
	}
	return e, nil
}

// set sets the field of key to value.
func (e *openMPIEntry) set(key, value word) error {
	k := openMPIKeyOf(key.text)
	if e.seen[k] && k != unknownKey {
		return key.errorf("%s for %s twice; leave one", key.text, show(e.Name))
	}
	e.seen[k] = true
	var err error
	switch k {
	case slotsKey:
		e.SlotsGiven = true
		e.Slots, err = value.count(key.text, value.text, 0, maxSlots)
	case maxKey:
		e.max = value.Position
		e.MaxSlots, err = value.count(key.text, value.text, 1, maxSlots)
	case portKey:
		e.Port, err = value.count(key.text, value.text, 1, 65535)
	case userKey:
		if e.User != "" {
			return key.errorf("%s for %s@%s; give the user once", key.text, e.User, show(e.Name))
		}
		e.User, err = value.text, value.user(value.text)
	default:
		lower := strings.ToLower(key.text)
		switch {
		case key.text == "binding" || key.text == "user":
			return key.errorf("%s= is MPICH's; leave it out, or say --hostfile-format mpich for a file without Open MPI's keys", key.text)
		case openMPIKeyOf(lower) != unknownKey:
			return key.errorf("%s: keys are lower case; write %s=", show(key.text), lower)
		}
		return key.errorf("%s: no such key; give slots, max_slots, username or port", show(key.text))
	}
	return err
}

// find returns the entry of the same host as name. Open MPI compares the first labels of
// names, so node1 and node1.cluster are one host. Two names with different domains are two
// hosts.
func (t *openMPITable) find(name string) (int, bool) {
	if i, ok := t.byName[name]; ok {
		return i, true
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return 0, false
	}
	label, _, domain := strings.Cut(name, ".")
	if domain {
		i, ok := t.byName[label]
		return i, ok
	}
	i, ok := t.byLabel[name]
	return i, ok
}

// add adds a line to the table.
func (t *openMPITable) add(e openMPIEntry) error {
	i, again := t.find(e.Name)
	if !again {
		if len(t.entries) == maxHosts {
			return e.at.errorf("more than %d hosts; split the job", maxHosts)
		}
		t.byName[e.Name] = len(t.entries)
		if label, _, domain := strings.Cut(e.Name, "."); domain {
			if _, err := netip.ParseAddr(e.Name); err != nil {
				if _, ok := t.byLabel[label]; !ok {
					t.byLabel[label] = len(t.entries)
				}
			}
		}
		t.entries = append(t.entries, e)
		return nil
	}
	first := &t.entries[i]
	alias := ""
	if first.Name != e.Name {
		alias = ", as " + show(first.Name)
	}
	switch {
	case first.SlotsGiven && e.SlotsGiven:
		return e.at.errorf("%s has slots on line %d already%s; list it once", show(e.Name), first.at.Line, alias)
	case first.SlotsGiven || e.SlotsGiven:
		return e.at.errorf("%s is on line %d already%s, and one of the two lines has slots; "+
			"list it once with slots, or once a slot", show(e.Name), first.at.Line, alias)
	case first.MaxSlots > 0 && e.MaxSlots > 0 && first.MaxSlots != e.MaxSlots:
		return e.max.errorf("max_slots %d for %s, which has %d on line %d; give it once",
			e.MaxSlots, show(e.Name), first.MaxSlots, first.at.Line)
	case first.User != "" && e.User != "" && first.User != e.User:
		return e.at.errorf("user %s for %s, which has %s on line %d; give it once", e.User, show(e.Name), first.User, first.at.Line)
	case first.Port > 0 && e.Port > 0 && first.Port != e.Port:
		return e.at.errorf("port %d for %s, which has %d on line %d; give it once", e.Port, show(e.Name), first.Port, first.at.Line)
	}
	if alias != "" {
		t.warnings = append(t.warnings, e.at.warningf("%s is taken for %s of line %d, as Open MPI does; "+
			"write one name for one host", show(e.Name), show(first.Name), first.at.Line))
	}
	first.lines++
	if e.MaxSlots > 0 {
		first.MaxSlots, first.max = e.MaxSlots, e.max
	}
	if e.User != "" {
		first.User = e.User
	}
	if e.Port > 0 {
		first.Port = e.Port
	}
	return nil
}

// hosts returns the list, when all lines have been added.
func (t *openMPITable) hosts() ([]Host, error) {
	var list []Host
	for _, e := range t.entries {
		switch {
		case e.SlotsGiven:
		case e.lines > 1:
			e.Slots, e.SlotsGiven = e.lines, true
		case e.MaxSlots > 0:
			e.Slots, e.SlotsGiven = e.MaxSlots, true
		}
		if e.MaxSlots > 0 && e.MaxSlots < e.Slots {
			return nil, e.max.errorf("max_slots %d below the %d slots of %s; raise it, or lower slots", e.MaxSlots, e.Slots, show(e.Name))
		}
		list = append(list, e.Host)
	}
	return list, nil
}
