package job

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// WordVar is the variable by which gorun asks ranks that another launcher starts to report
// to it by Words. Its value is in every Word.
const WordVar = "GORUN_WORD"

// WordMark begins a Word. Ordinary output does not contain this character.
const WordMark = '\x1e'

// AliveInterval is the time between two Alive words of a host.
const AliveInterval = 2 * time.Second

// StopSignal asks ranks that have WordVar to end, as SIGTERM asks others. mpirun only passes it
// on, while a SIGTERM makes mpirun kill the ranks 1 s later.
const StopSignal = syscall.SIGALRM

// A WordKind is the event that a Word reports.
type WordKind byte

const (
	Placed  WordKind = '@' // the rank's shell is on its host, and starts the program
	Started WordKind = '+' // the rank has started
	Alive   WordKind = '.' // the ranks of the host are running
	Ended   WordKind = '-' // the rank has ended by itself, or because it was asked to
	Dragged WordKind = '~' // the rank has ended because another rank failed
	Gone    WordKind = '#' // the rank's process has ended; the shell that started it says so, or a rank of its host
	Asked   WordKind = '!' // a signal has asked the rank to end
	Begun   WordKind = '>' // rank 0 of an elastic job has begun its first step
	Kept    WordKind = '=' // all ranks have a snapshot in memory; rank 0 says so
	Stored  WordKind = '*' // the rank has saved, for the first time, what the job can be resumed from
)

// A Word is a line that a rank writes to its standard error for gorun. gorun removes it from the
// output.
type Word struct {
	Kind   WordKind
	Rank   int
	Status int    // of Ended, Dragged and Gone: the exit status, 128 + its number for a signal; of Asked: that number; of Kept: the step
	Host   string // name of the rank's host
	Text   string // of Ended and Dragged: the error, "" for none
}

// maxWord is the most bytes of a word's text, so that a pipe takes the whole line at once.
const maxWord = 1000

// Line returns the word as the rank writes it; token is the value of WordVar.
func (w Word) Line(token string) string {
	text := strconv.QuoteToASCII(w.Text)
	for n := maxWord; len(text) > maxWord; n /= 2 {
		text = strconv.QuoteToASCII(w.Text[:min(n, len(w.Text))])
	}
	return fmt.Sprintf("%c%s %c %d %d %q %s\n", WordMark, token, w.Kind, w.Rank, w.Status, w.Host, text)
}

// ParseWord reads a line that begins with WordMark; ok is false if it is no word
// with this token.
func ParseWord(token, line string) (w Word, ok bool) {
	rest, ok := strings.CutPrefix(line, string(rune(WordMark))+token+" ")
	if !ok || token == "" {
		return Word{}, false
	}
	var kind string
	if n, err := fmt.Sscanf(rest, "%s %d %d %q %q", &kind, &w.Rank, &w.Status, &w.Host, &w.Text); err != nil || n != 5 || len(kind) != 1 {
		return Word{}, false
	}
	w.Kind = WordKind(kind[0])
	switch w.Kind {
	case Placed, Started, Alive, Ended, Dragged, Gone, Asked, Begun, Kept, Stored:
		return w, w.Rank >= 0 && w.Rank < MaxSize
	}
	return Word{}, false
}
