//go:build !unix

package rowstore

import (
	"errors"
	"runtime"
)

// Create returns an error: an open file keeps its name here.
func (osFiles) Create(string) (File, string, error) {
	return nil, "", errors.New("tables on a disk are not for " + runtime.GOOS + "; use Linux or macOS, or keep the table in memory")
}
