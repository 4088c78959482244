//go:build linux

package handover

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/launcher/hosts"
)

// A blame is what a launcher says on standard error of the first rank that failed. It
// ends the others at once, and these have no last word either.
type blame struct {
	known, ending bool // it has said that, or that it ends the job
	line          []byte
	before        string // Failure.Next of the line before
	failures      []func(line []byte, before string) hosts.Failure
}

// maxBlame is more than any such line has.
const maxBlame = 512

// read takes a piece of a line in; whole says that it ends the line. If the line names
// the rank, ok is true and status is how it ended.
func (b *blame) read(piece []byte, whole bool) (rank, status int, ok bool) {
	if b.known {
		return 0, 0, false
	}
	b.line = append(b.line, piece[:min(len(piece), maxBlame-len(b.line))]...)
	if !whole {
		return 0, 0, false
	}
	line := bytes.TrimRight(b.line, "\r\n")
	b.line = b.line[:0]
	before := b.before
	b.before = ""
	for _, failure := range b.failures {
		f := failure(line, before)
		b.ending = b.ending || f.Ends
		b.before += f.Next
		if f.Known {
			b.known = true
			return f.Rank, f.Status, true
		}
	}
	return 0, 0, false
}

// newBlame is for the lines of any launcher.
func newBlame() blame {
	var b blame
	seen := ""
	for _, l := range hosts.Launchers() {
		if l.Failure != nil && l.Via != seen {
			b.failures = append(b.failures, l.Failure)
		}
		seen = l.Via
	}
	return b
}

// sshFails returns what a line of ssh says of a host to which it cannot connect, or which it cannot enter.
func sshFails(line string) (text string, ok bool) {
	line = strings.TrimSpace(line)
	if text, ok = strings.CutPrefix(line, "ssh: "); ok {
		return text, true
	}
	user, _, denied := strings.Cut(line, ": Permission denied (")
	return line, denied && strings.Contains(user, "@") || strings.HasSuffix(line, " and you have requested strict checking.") ||
		sshNamesNone(line)
}

// sshNamesNone reports whether ssh names no host where it says text.
func sshNamesNone(text string) bool {
	return text == "Host key verification failed." || text == "Connection timed out during banner exchange" ||
		strings.HasPrefix(text, "kex_exchange_identification: ")
}

// unreached says which of the hosts ssh does not reach, by its own words, if no rank has started
// since, and what to do: MPICH's launcher waits for it for ever. Later such a line is a rank's. host is "" if ssh has not
// named one, and text too if it has said nothing. down is set if the host has an address, at which nobody answers.
func (w *words) unreached(list []hosts.Host) (host, text string, down bool) {
	if w == nil {
		return "", "", false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.ranks) > 0 {
		return "", "", false
	}
	if sshNamesNone(w.ssh) {
		return "", fmt.Sprintf("a host cannot be reached (ssh: %s); try ssh to each of %s", w.ssh, hostNames(list)), false
	}
	// A name comes after a word or "root@", and before a word or ": why".
	said := strings.FieldsFunc(w.ssh, func(r rune) bool { return r == ' ' || r == '@' })
	for _, h := range list {
		if slices.Contains(said, h.Name) || slices.Contains(said, h.Name+":") {
			return h.Name, fmt.Sprintf("%s cannot be reached (ssh: %s); mend its name or its line of the host file, and try ssh %s true",
				h.Name, w.ssh, h.Name), strings.HasPrefix(w.ssh, "connect to host ")
		}
	}
	return "", "", false
}
