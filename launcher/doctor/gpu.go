//go:build linux

package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/launcher/phrase"
)

// A gpu is the driver's description of a device.
type gpu struct {
	name, capability, driver string
	memory                   uint64 // bytes
}

// The PTX of tensor/cuda needs this compute capability, and the driver that came with CUDA 11.8.
const (
	leastCapability = 8.0
	leastDriver     = 520
)

// driverGPUs returns the devices that the driver's tool nvidia-smi lists. gorun is one
// static file and so does not load the driver itself.
func (c *checkup) driverGPUs() (gpus []gpu) {
	tool, err := c.find("nvidia-smi")
	if err != nil {
		return nil
	}
	out, err := c.run(tool, "--query-gpu=name,memory.total,compute_cap,driver_version", "--format=csv,noheader,nounits")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(out) {
		fields := strings.Split(line, ",")
		if len(fields) != 4 {
			return nil // an error message in place of the table
		}
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		mib, _ := strconv.ParseUint(fields[1], 10, 64)
		gpus = append(gpus, gpu{name: phrase.Printable(fields[0]), memory: mib << 20,
			capability: phrase.Printable(fields[2]), driver: phrase.Printable(fields[3])})
	}
	return gpus
}

// sortsOf returns a text such as "NVIDIA H200, 140.4 GiB, compute capability 9.0" for each sort
// of device.
func sortsOf(gpus []gpu) string {
	var sorts []string
	numbers := map[string]int{}
	for _, g := range gpus {
		text := g.name
		if g.memory > 0 {
			text += ", " + gib(g.memory)
		}
		text += ", compute capability " + g.capability
		if v, err := strconv.ParseFloat(g.capability, 64); err == nil && v < leastCapability {
			text += fmt.Sprintf(", which is less than the %.1f that tensors on a GPU need", leastCapability)
		}
		if numbers[text]++; numbers[text] == 1 {
			sorts = append(sorts, text)
		}
	}
	if len(sorts) > 1 {
		for i, text := range sorts {
			sorts[i] = fmt.Sprintf("%d × %s", numbers[text], text)
		}
	}
	return strings.Join(sorts, "; ")
}

// gpus returns the GPUs that CUDA would find.
func (c *checkup) gpus() finding {
	f := finding{Name: "CUDA"}
	files, _ := filepath.Glob(c.root + "/dev/nvidia[0-9]*")
	libs := c.libraries("libcuda.so.1")
	devices := c.driverGPUs()
	switch {
	case len(libs) > 0 && len(devices) > 0:
		f.OK = true
		f.Text = fmt.Sprintf("%s (%s); %s, %s", ints.Counted(len(devices), "GPU"), sortsOf(devices), libs[0], driverOf(devices[0].driver))
	case len(libs) > 0 && len(files) > 0:
		f.OK = true
		f.Text = ints.Counted(len(files), "GPU")
		if models := c.models(); len(models) > 0 {
			f.Text += " (" + strings.Join(models, ", ") + ")"
		}
		f.Text += "; " + libs[0]
		driver, _ := os.ReadFile(c.root + "/proc/driver/nvidia/version")
		if v := strings.Fields(phrase.FirstLine(string(driver))); len(v) > 7 {
			f.Text += ", " + driverOf(v[7])
		}
	case len(files) > 0:
		f.Text, f.Fix = ints.Counted(len(files), "GPU")+", but no libcuda.so.1: the driver's library is not installed, or not in this container",
			c.install("libcuda1", "nvidia-driver-cuda-libs")
	case c.nvidiaOnBus():
		f.Text, f.Fix = "a GPU on the bus, but no /dev/nvidia*: the driver is not loaded, or the container was started without the GPU",
			c.install("nvidia-driver", "akmod-nvidia")
	default:
		f.Text = "no NVIDIA GPU"
	}
	return f
}

// driverOf returns "driver 570.86.15", with a remark if it is too old.
func driverOf(version string) string {
	text := "driver " + version
	branch, _, _ := strings.Cut(version, ".")
	if v, err := strconv.Atoi(branch); err == nil && v < leastDriver {
		text += fmt.Sprintf(", which is older than the %d that tensors on a GPU need", leastDriver)
	}
	return text
}

// models returns the names of the devices as the kernel's module gives them.
func (c *checkup) models() (models []string) {
	infos, _ := filepath.Glob(c.root + "/proc/driver/nvidia/gpus/*/information")
	for _, name := range infos {
		text, _ := os.ReadFile(name)
		if _, rest, ok := strings.Cut(string(text), "Model:"); ok {
			models = append(models, strings.TrimSpace(phrase.FirstLine(rest)))
		}
	}
	return models
}

// nvidiaOnBus reports whether a display or compute device of NVIDIA is in the machine.
func (c *checkup) nvidiaOnBus() bool {
	vendors, _ := filepath.Glob(c.root + "/sys/bus/pci/devices/*/vendor")
	for _, name := range vendors {
		vendor, _ := os.ReadFile(name)
		class, _ := os.ReadFile(filepath.Dir(name) + "/class")
		if strings.TrimSpace(string(vendor)) == "0x10de" && strings.HasPrefix(string(class), "0x03") {
			return true
		}
	}
	return false
}
