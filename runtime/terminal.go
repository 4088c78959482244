package runtime

import (
	"context"
	"os"

	"golang.org/x/term"
)

// Terminal reports whether standard error ends up on a terminal that is not dumb, this
// process's own or gorun's, and if so, how wide it is: a number of columns to be asked for
// whenever a line is drawn.
//
// A rank may redraw a line there: what it writes after a carriage return, without
// a newline, is shown at once, and gorun keeps it below the lines of all ranks.
// The width of gorun's terminal is the one that it had when the job started;
// gorun cuts what does not fit.
func Terminal(ctx context.Context) (columns func() int, ok bool) {
	if r := from(ctx); r != nil && r.job.Columns > 0 {
		return func() int { return r.job.Columns }, true
	}
	fd := int(os.Stderr.Fd())
	if !term.IsTerminal(fd) || os.Getenv("TERM") == "dumb" {
		return nil, false
	}
	return func() int {
		width, _, err := term.GetSize(fd)
		if err != nil || width <= 0 {
			return 80
		}
		return width
	}, true
}
