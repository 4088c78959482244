package options

import (
	"errors"
	"flag"
	"fmt"
	"io"
)

// ParseCommand reads the flags of one of gorun's commands, and at most most
// arguments. done says that the command ends with status, after help or a mistake.
func ParseCommand(f *flag.FlagSet, args []string, most int, usage string, stdout, stderr io.Writer) (status int, done bool) {
	f.SetOutput(io.Discard)
	err := f.Parse(args)
	if err == nil && f.NArg() > most {
		err = fmt.Errorf("%q is one argument too many", f.Arg(most))
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		return 0, true
	case err != nil:
		fmt.Fprintf(stderr, "%s: %v\n%s", f.Name(), err, usage)
		return 2, true
	}
	return 0, false
}
