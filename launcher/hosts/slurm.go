package hosts

import (
	"strconv"
	"strings"
)

// expand returns the hosts of a Slurm node list that starts at p, in its order, with
// duplicates: n[01-04,7],m is n01 n02 n03 n04 n7 m. A range counts up and is
// padded with zeros to the width of its first number. Several brackets in one
// item give all combinations, the rightmost counting fastest. More than 65536
// hosts are an error, and so is text that Slurm would not write itself.
func (p Position) expand(list string) ([]string, error) {
	var out []string
	start, depth := 0, 0
	for i := 0; i <= len(list); i++ {
		at := p
		at.Column += i
		if i < len(list) {
			switch c := list[i]; {
			case c == '[' && depth == 1:
				return nil, at.errorf("a [ inside brackets; close the first with ]")
			case c == '[':
				depth = 1
			case c == ']' && depth == 0:
				return nil, at.errorf("a ] without a [; write n[1-4]")
			case c == ']':
				depth = 0
			}
			if list[i] != ',' || depth == 1 {
				continue
			}
		} else if depth == 1 {
			return nil, at.errorf("the list ends inside brackets; close them with ]")
		}
		at = p
		at.Column += start
		names, err := at.item(list[start:i], maxHosts-len(out))
		if err != nil {
			return nil, err
		}
		out = append(out, names...)
		start = i + 1
	}
	return out, nil
}

// item expands one item, whose brackets match, to at most limit names.
func (p Position) item(s string, limit int) ([]string, error) {
	if s == "" {
		return nil, p.errorf("an empty name; write the hosts with one comma between")
	}
	at := p
	names := []string{""}
	for s != "" {
		text, rest, bracket := strings.Cut(s, "[")
		if i := strings.IndexFunc(text, outsideName); i >= 0 {
			at.Column += i
			return nil, at.errorf("%s: not part of a host's name; letters, digits and . _ - are", show(text[i:]))
		}
		parts := []string{text}
		at.Column += len(text)
		if bracket {
			ranges, after, _ := strings.Cut(rest, "]")
			at.Column++
			numbers, err := at.ranges(ranges, limit)
			if err != nil {
				return nil, err
			}
			for i, n := range numbers {
				numbers[i] = text + n
			}
			parts, rest = numbers, after
			at.Column += len(ranges) + 1
		}
		if len(names)*len(parts) > limit {
			return nil, p.errorf("more than %d hosts; split the list", maxHosts)
		}
		product := make([]string, 0, len(names)*len(parts))
		for _, a := range names {
			for _, b := range parts {
				if len(a)+len(b) > maxName {
					return nil, p.errorf("a host's name of more than %d bytes; shorten it", maxName)
				}
				product = append(product, a+b)
			}
		}
		names, s = product, rest
	}
	if names[0][0] == '-' {
		return nil, p.errorf("%s: a host's name does not start with -, ssh would take it for an option", show(names[0]))
	}
	return names, nil
}

// ranges expands "01-04,7" to at most limit numbers.
func (p Position) ranges(s string, limit int) ([]string, error) {
	var out []string
	for r := range strings.SplitSeq(s, ",") {
		from, to, isRange := strings.Cut(r, "-")
		if !isRange {
			to = from
		}
		if !digits(from) || !digits(to) {
			return nil, p.errorf("%s: not a range; write numbers, as [1-4,7]", show(r))
		}
		a, errA := strconv.ParseUint(from, 10, 63)
		b, errB := strconv.ParseUint(to, 10, 63)
		switch {
		case errA != nil || errB != nil || len(from) > maxName:
			return nil, p.errorf("%s: a number too large for a host; shorten it", show(r))
		case b < a:
			return nil, p.errorf("%s: a range that counts down; write %s", show(r), show(to+"-"+from))
		case b-a >= uint64(limit-len(out)):
			return nil, p.errorf("more than %d hosts; split the list", maxHosts)
		}
		for n := a; n <= b; n++ {
			digits := strconv.FormatUint(n, 10)
			out = append(out, strings.Repeat("0", max(0, len(from)-len(digits)))+digits)
		}
		p.Column += len(r) + 1
	}
	return out, nil
}

// expandCounts returns the numbers in Slurm's notation for one number for each host, in text
// that starts at p: 2(x3),1 is 2 2 2 1.
func (p Position) expandCounts(s string) ([]int, error) {
	var out []int
	for item := range strings.SplitSeq(s, ",") {
		number, times, repeated := strings.Cut(item, "(x")
		n, err := p.count("tasks", number, 0, maxSlots)
		if err != nil {
			return nil, err
		}
		k := 1
		if repeated {
			at := p
			at.Column += len(number) + 2
			inner, closed := strings.CutSuffix(times, ")")
			if !closed {
				return nil, at.errorf("%s: no ) after the number of hosts; write 2(x3)", show(times))
			}
			if k, err = at.count("hosts", inner, 1, maxHosts); err != nil {
				return nil, err
			}
		}
		if len(out)+k > maxHosts {
			return nil, p.errorf("counts for more than %d hosts; split the list", maxHosts)
		}
		for range k {
			out = append(out, n)
		}
		p.Column += len(item) + 1
	}
	return out, nil
}

// parseSlurm reads a file of node lists, one on each line. The slots of the hosts are not given.
// But if any host comes twice, each mention is a slot.
func parseSlurm(name string, text []byte) ([]Host, error) {
	var names []string
	var at []Position
	err := eachLine(name, text, func(words []word) error {
		if len(words) > 1 {
			return words[1].errorf("%s after the list; write one list a line, without spaces", show(words[1].text))
		}
		more, err := words[0].expand(words[0].text)
		if err == nil && len(names)+len(more) > maxHosts {
			err = words[0].errorf("more than %d hosts; split the job", maxHosts)
		}
		names = append(names, more...)
		for range more {
			at = append(at, words[0].Position)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	again := false
	for _, n := range names {
		again = again || seen[n]
		seen[n] = true
	}
	var list []Host
	for i, n := range names {
		if !again {
			list = append(list, Host{Name: n})
		} else if list, err = at[i].add(list, Host{Name: n, Slots: 1, SlotsGiven: true}); err != nil {
			return nil, err
		}
	}
	return list, nil
}
