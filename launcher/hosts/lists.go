package hosts

import (
	"strings"
)

// parseMPICH reads hydra's grammar:
//
//	line = [user@]host [":" N] { ("binding" | "user") "=" value }
//
// # starts a comment, and lines may end in CR LF. A line without N is one slot.
// Neighbouring lines of one host are one entry. The order of the lines is that of the ranks.
// binding= is ignored: gorun has --bind-to.
func parseMPICH(name string, text []byte) ([]Host, error) {
	var list []Host
	err := eachLine(name, text, func(words []word) error {
		first := words[0]
		if strings.Contains(first.text, "=") {
			return first.errorf("%s: no host; start the line with its name, as node1:4", show(first.text))
		}
		h, err := first.hostCount(first.text)
		if err != nil {
			return err
		}
		seen := map[string]bool{}
		for _, w := range words[1:] {
			key, value, ok := strings.Cut(w.text, "=")
			at := w.Position
			at.Column += len(key) + 1
			switch {
			case !ok:
				return w.errorf("%s after the host; write one host a line, as node1:4", show(w.text))
			case key != "binding" && key != "user":
				return w.errorf("%s: MPICH knows binding= and user= here; write node1:4 for slots, "+
					"or say --hostfile-format openmpi", show(key))
			case seen[key]:
				return w.errorf("%s for %s twice; leave one", key, show(h.Name))
			case value == "":
				return at.errorf("%s= without a value; give one, or leave it out", key)
			case key == "user" && h.User != "":
				return w.errorf("user= for %s@%s; give the user once", h.User, show(h.Name))
			case key == "user":
				if err := at.user(value); err != nil {
					return err
				}
				h.User = value
			}
			seen[key] = true
		}
		list, err = first.add(list, h)
		return err
	})
	return list, err
}

// hostCount reads "[user@]host[:N]"; without N it is one slot.
func (p Position) hostCount(s string) (Host, error) {
	h := Host{Slots: 1, SlotsGiven: true}
	host, number, counted := strings.Cut(s, ":")
	if bare, _, _ := strings.Cut(s[strings.IndexByte(s, '@')+1:], "%"); isIPv6(bare) {
		return h, p.errorf("%s: MPICH would read this IPv6 address as a host and a count; write the host's name", show(s))
	}
	var err error
	if h.User, h.Name, err = p.login(host); err != nil {
		return h, err
	}
	if counted {
		p.Column += len(host) + 1
		h.Slots, err = p.count("slots of "+show(h.Name), number, 1, maxSlots)
	}
	return h, err
}

// add appends h to list, or to the slots of the last entry if that is the same host.
func (p Position) add(list []Host, h Host) ([]Host, error) {
	if last := len(list) - 1; last >= 0 && list[last].sameAs(h) {
		if list[last].Slots += h.Slots; list[last].Slots > maxSlots {
			return nil, p.errorf("slots of %s: more than %d; list it less often", show(h.Name), maxSlots)
		}
		return list, nil
	}
	if len(list) == maxHosts {
		return nil, p.errorf("more than %d hosts; split the job", maxHosts)
	}
	return append(list, h), nil
}

// parsePBS reads one line for each slot. Neighbouring lines of one host are one entry.
func parsePBS(name string, text []byte) ([]Host, error) {
	var list []Host
	err := eachLine(name, text, func(words []word) error {
		first := words[0]
		if len(words) > 1 {
			return words[1].errorf("%s after the host; write one host a line, once a slot", show(words[1].text))
		}
		user, host, err := first.login(first.text)
		if err != nil {
			return err
		}
		list, err = first.add(list, Host{Name: host, User: user, Slots: 1, SlotsGiven: true})
		return err
	})
	return list, err
}

// parsePlain reads one host on each line. If any host is listed twice, a line is a slot, as
// in PBS's file; else the slots are not given.
func parsePlain(name string, text []byte) ([]Host, error) {
	list, err := parsePBS(name, text)
	seen := map[Host]bool{}
	for _, h := range list {
		if h.Slots > 1 || seen[h] {
			return list, err
		}
		seen[h] = true
	}
	for i := range list {
		list[i].Slots, list[i].SlotsGiven = 0, false
	}
	return list, err
}

// parseSGE reads Grid Engine's file: host, slots, queue and processor range on each line.
func parseSGE(name string, text []byte) ([]Host, error) {
	var list []Host
	err := eachLine(name, text, func(words []word) error {
		first := words[0]
		if len(words) < 2 || len(words) > 4 {
			return first.errorf("%d words; Grid Engine writes host, slots, queue and processors a line", len(words))
		}
		user, host, err := first.login(first.text)
		if err != nil {
			return err
		}
		n, err := words[1].count("slots of "+show(host), words[1].text, 1, maxSlots)
		if err != nil {
			return err
		}
		list, err = first.add(list, Host{Name: host, User: user, Slots: n, SlotsGiven: true})
		return err
	})
	return list, err
}

// parseLSF reads hosts and slots in turn, on any number of lines.
func parseLSF(name string, text []byte) ([]Host, error) {
	var list []Host
	err := eachLine(name, text, func(words []word) error {
		for ; len(words) > 0; words = words[2:] {
			first := words[0]
			user, host, err := first.login(first.text)
			if err != nil {
				return err
			}
			if len(words) == 1 {
				return first.errorf("%s without a number of slots; LSF writes host and slots in turn", show(host))
			}
			n, err := words[1].count("slots of "+show(host), words[1].text, 1, maxSlots)
			if err != nil {
				return err
			}
			if list, err = first.add(list, Host{Name: host, User: user, Slots: n, SlotsGiven: true}); err != nil {
				return err
			}
		}
		return nil
	})
	return list, err
}

// ParseList reads the value of --host: hosts separated by commas, each
// "[user@]name[:N]". A host without N is one slot, as in Open MPI. The slots of a host named
// twice add up. Errors name --host in place of a file.
func ParseList(list string) ([]Host, error) {
	p := Position{"--host", 1, 1}
	var out []Host
	for item := range strings.SplitSeq(list, ",") {
		if item == "" {
			return nil, p.errorf("an empty name; write --host node1:2,node2:2")
		}
		h, err := p.hostCount(item)
		if err != nil {
			return nil, err
		}
		if out, err = p.add(out, h); err != nil {
			return nil, err
		}
		p.Column += len(item) + 1
	}
	return out, nil
}
