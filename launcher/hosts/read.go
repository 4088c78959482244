package hosts

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// maxFile is the largest host file, in bytes: room for 200 000 hosts and more.
const maxFile = 16 << 20

// ReadFile reads a host file. It refuses a file that is too large to be one, such as a device
// without an end or a file named by mistake, before memory runs out. Its error is a *PathError.
func ReadFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = &fs.PathError{Op: "read", Path: name,
			Err: errors.New("it has more than 16 MiB, the most that a host file may have; name a file with one line for each host")}
	}
	if err != nil {
		return nil, err
	}
	return text, nil
}
