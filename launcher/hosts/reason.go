package hosts

import (
	"errors"
	"strings"
)

// Reason takes the package and function off an error of this package, for the user of a command.
func Reason(err error) error {
	if err == nil {
		return nil
	}
	if text, ok := strings.CutPrefix(err.Error(), "hosts: "); ok {
		if _, rest, ok := strings.Cut(text, ": "); ok {
			return errors.New(rest)
		}
	}
	return err
}
