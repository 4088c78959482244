//go:build unix

package rowstore

import "os"

// Create makes a file with a name of its own and takes the name away.
func (osFiles) Create(folder string) (File, string, error) {
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return nil, "", err
	}
	f, err := os.CreateTemp(folder, "rows-")
	if err != nil {
		return nil, "", err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close() // err is the one to tell
		return nil, "", err
	}
	return f, f.Name(), nil
}
