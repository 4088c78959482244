package options

import (
	"errors"
	"path/filepath"
	"strconv"

	"github.com/gorun-spmd/gorun/internal/job"
)

// digestVariables returns the variables that tell the ranks of --digest and what goes with it. The
// file's path is absolute, because ranks may run in another folder than gorun.
func (o *Options) digestVariables() ([]string, error) {
	switch {
	case o.digest == "" && o.digestEvery > 0:
		return nil, errors.New("--digest-every: give the file with --digest")
	case o.digest == "" && o.digestOps:
		return nil, errors.New("--digest-ops: give the file with --digest")
	case o.digest == "":
		return nil, nil
	}
	path, err := filepath.Abs(o.digest)
	if err != nil {
		return nil, err
	}
	vars := []string{job.DigestVar + "=" + path, job.DigestEveryVar + "=" + strconv.Itoa(max(1, o.digestEvery))}
	if o.digestOps {
		vars = append(vars, job.DigestOpsVar+"=1")
	}
	return vars, nil
}

// profileVariables returns the variables that tell the ranks of --profile.
func (o *Options) profileVariables() ([]string, error) {
	if o.profile == "" {
		return nil, nil
	}
	path, err := filepath.Abs(o.profile)
	return []string{job.ProfileVar + "=" + path}, err
}

// sameBitsVariables returns the variables that tell the ranks of --same-bits.
func (o *Options) sameBitsVariables() []string {
	if !o.sameBits {
		return nil
	}
	return []string{job.SameBitsVar + "=1"}
}
