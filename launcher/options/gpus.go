package options

import (
	"fmt"
	"regexp"

	"github.com/gorun-spmd/gorun/internal/job"
)

// gpuList matches the values of CUDA_VISIBLE_DEVICES: numbers or identifiers of devices.
var gpuList = regexp.MustCompile(`^([0-9]+|(GPU|MIG)-[0-9A-Za-z-]+)(,([0-9]+|(GPU|MIG)-[0-9A-Za-z-]+))*$`)

// chooseGPUs parses --gpus.
func (o *Options) chooseGPUs(s string) error {
	if s != "auto" && s != "none" && !gpuList.MatchString(s) {
		return fmt.Errorf("%q names no GPUs; give auto, none or a list as 0,1", s)
	}
	o.gpus = s
	return nil
}

// gpuVariables returns the variables that tell the ranks of --gpus.
func (o *Options) gpuVariables() []string {
	switch o.gpus {
	case "":
		return nil
	case "auto", "none":
		return []string{job.GPUsVar + "=" + o.gpus}
	}
	return []string{job.GPUsVar + "=" + o.gpus, "CUDA_VISIBLE_DEVICES=" + o.gpus}
}
