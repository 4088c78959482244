package job

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// WordVar is the variable by which gorun asks the ranks that another launcher
// starts for it to tell it where and how they are. Its value is in every Word.
const WordVar = "GORUN_WORD"

// WordMark begins a Word. Text has no such character.
const WordMark = '\x1e'

// AliveInterval is the time between two words of a host that its ranks run on.
const AliveInterval = 2 * time.Second

// StopSignal asks ranks that WordVar was given to as SIGTERM does. mpirun passes it on
// and leaves it at that, while a SIGTERM has it kill the ranks 1 s after.
const StopSignal = syscall.SIGALRM

// A WordKind is what a Word tells.
type WordKind byte

const (
	Started WordKind = '+'
	Alive   WordKind = '.'
	Ended   WordKind = '-' // of its own accord, or as it was asked to
	Dragged WordKind = '~' // because another rank failed
	Gone    WordKind = '#' // its process has, as the shell that started it says
	Asked   WordKind = '!' // a signal has asked the rank to end
)

// A Word is a line among a rank's standard error that is for gorun, which takes it out.
type Word struct {
	Kind   WordKind
	Rank   int
	Status int    // of Ended, Dragged and Gone: the exit status, 128 + its number for a signal; of Asked: the signal's number
	Host   string // the rank's, by its own name
	Text   string // of Ended and Dragged: the error, "" for none
}

// maxWord is how long a word's text is at most: pipes take the whole line at once.
const maxWord = 1000

// Line is the word as the rank writes it; token is the value of WordVar.
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
	case Started, Alive, Ended, Dragged, Gone, Asked:
		return w, w.Rank >= 0 && w.Rank < MaxSize
	}
	return Word{}, false
}
