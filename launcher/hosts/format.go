package hosts

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// A Format is a grammar of host files.
type Format uint8

const (
	Auto    Format = iota // the format that Detect finds
	OpenMPI               // host slots=4 max_slots=8
	MPICH                 // host:4, read by hydra
	Plain                 // one line for each host
	PBS                   // one line for each slot, as in $PBS_NODEFILE
	SGE                   // host 4 queue processors, as in $PE_HOSTFILE
	LSF                   // host 4 host 4, as in $LSB_MCPU_HOSTS
	Slurm                 // host[1-4,7], as in $SLURM_JOB_NODELIST
)

// names returns the spelling of each format, by its number.
func names() []string {
	return []string{"auto", "openmpi", "mpich", "plain", "pbs", "sge", "lsf", "slurm"}
}

// String returns the format's name, as --hostfile-format takes it.
func (f Format) String() string {
	if n := names(); int(f) < len(n) {
		return n[f]
	}
	return fmt.Sprintf("Format(%d)", uint8(f))
}

// ParseFormat returns the format of that name.
func ParseFormat(name string) (Format, error) {
	if i := slices.Index(names(), name); i >= 0 {
		return Format(i), nil
	}
	return Auto, fmt.Errorf("hosts: ParseFormat: %s: no such format; give %s", show(name), strings.Join(names(), ", "))
}

// Parse reads text, the content of the file name, in the grammar of format. The
// name appears only in errors and warnings. An error is an *Error. A warning points to
// text that a person may understand in another way; the hosts are good nevertheless.
func Parse(name string, text []byte, format Format) ([]Host, []Warning, error) {
	if format == Auto {
		format = Detect(text)
	}
	var list []Host
	var warnings []Warning
	var err error
	switch format {
	case OpenMPI:
		list, warnings, err = parseOpenMPI(name, text)
	case MPICH:
		list, err = parseMPICH(name, text)
	case Plain:
		list, err = parsePlain(name, text)
	case PBS:
		list, err = parsePBS(name, text)
	case SGE:
		list, err = parseSGE(name, text)
	case LSF:
		list, err = parseLSF(name, text)
	case Slurm:
		list, err = parseSlurm(name, text)
	default:
		return nil, nil, fmt.Errorf("hosts: Parse: %v: no such format; use one of the package's", format)
	}
	if err == nil && len(list) == 0 {
		err = Position{name, 1, 1}.errorf("no hosts; write one a line, such as: node1 slots=4")
	}
	if err != nil {
		return nil, nil, err
	}
	return list, warnings, nil
}

// Detect returns the grammar of text. A line with a key= makes the whole file Open MPI's, unless
// only MPICH has the key (binding= and user=). Otherwise host:N makes it MPICH's. Brackets
// without either make it Slurm's. Lines of four words with a number as the second are Grid
// Engine's. One line of hosts and numbers in turn is LSF's. Any other text is a plain list.
func Detect(text []byte) Format {
	var colons, brackets, numbered, lines int
	var words []string // of the last line
	hydra := false
	comment := false
	for line := range bytes.Lines(text) {
		line = stripComments(line, &comment)
		w := strings.FieldsFunc(string(line), isSpace)
		if len(w) == 0 {
			continue
		}
		lines++
		words = w
		if key, ok := firstKey(line); ok {
			if key != "binding" && key != "user" {
				return OpenMPI
			}
			hydra = true
		}
		host := w[0]
		switch {
		case strings.ContainsAny(host, "[]") && !isIPv6(strings.Trim(host, "[]")):
			brackets++
		case strings.Contains(host, ":") && !isIPv6(host) && host[0] != '[':
			colons++
		}
		if len(w) == 4 && digits(w[1]) && !digits(w[3]) {
			numbered++
		}
	}
	switch {
	case hydra || colons > 0:
		return MPICH
	case brackets > 0:
		return Slurm
	case numbered > 0 && numbered == lines:
		return SGE
	case lines == 1 && len(words)%2 == 0 && digits(words[1]):
		return LSF
	}
	return Plain
}

// firstKey returns the name before the first = of line.
func firstKey(line []byte) (string, bool) {
	before, _, ok := bytes.Cut(line, []byte("="))
	if !ok {
		return "", false
	}
	w := strings.FieldsFunc(string(before), isSpace)
	if len(w) == 0 {
		return "", true
	}
	return w[len(w)-1], true
}

// digits reports whether s consists of digits, at least one.
func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// isSpace reports whether r separates words on a line.
func isSpace(r rune) bool { return r < 128 && strings.ContainsRune(" \t\v\f\r\n", r) }

// stripComments removes the comments of a line: #, // and /* */. *inside says whether the line
// begins inside a /* */, and is set for the next line. Columns do not change.
func stripComments(line []byte, inside *bool) []byte {
	out := bytes.TrimRight(slices.Clone(line), "\n")
	for i := 0; i < len(out); i++ {
		rest := out[i:]
		switch {
		case *inside && bytes.HasPrefix(rest, []byte("*/")):
			out[i], out[i+1] = ' ', ' '
			*inside = false
			i++
		case *inside:
			out[i] = ' '
		case bytes.HasPrefix(rest, []byte("/*")):
			out[i], out[i+1] = ' ', ' '
			*inside = true
			i++
		case rest[0] == '#' || bytes.HasPrefix(rest, []byte("//")):
			return out[:i]
		}
	}
	return out
}

// A word is a run of bytes between spaces, and where it starts.
type word struct {
	Position
	text string
}

// split cuts a line into words. Characters that space accepts separate them.
func split(name string, number int, line []byte, space func(rune) bool) []word {
	var words []word
	start := -1
	for i := 0; i <= len(line); i++ {
		if i < len(line) && !space(rune(line[i])) {
			if start < 0 {
				start = i
			}
			continue
		}
		if start >= 0 {
			words = append(words, word{Position{name, number, start + 1}, string(line[start:i])})
			start = -1
		}
	}
	return words
}

// eachLine calls f with the words of every line that has any. Comments start
// with # and go to the end of the line. A carriage return counts as space.
func eachLine(name string, text []byte, f func(words []word) error) error {
	if bytes.HasPrefix(text, []byte("\xef\xbb\xbf")) {
		return Position{name, 1, 1}.errorf("a byte order mark; save the file as UTF-8 without one")
	}
	number := 0
	for line := range bytes.Lines(text) {
		number++
		line, _, _ = bytes.Cut(line, []byte("#"))
		words := split(name, number, line, isSpace)
		if len(words) == 0 {
			continue
		}
		if err := f(words); err != nil {
			return err
		}
	}
	return nil
}
