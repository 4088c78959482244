//go:build linux

package doctor

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// newCheckup returns a machine with the given files and programs. A program prints the text to
// which it is mapped.
func newCheckup(t *testing.T, files, programs map[string]string) *checkup {
	t.Helper()
	root := t.TempDir()
	files = maps.Clone(files)
	if files == nil {
		files = map[string]string{}
	}
	files["proc/meminfo"] = "MemTotal: 8388608 kB\n"
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return &checkup{
		root: root,
		env:  func(string) string { return "" },
		find: func(name string) (string, error) {
			if _, ok := programs[name]; ok {
				return name, nil
			}
			return "", errors.New("not found")
		},
		run: func(argv ...string) (string, error) { return programs[argv[0]], nil },
		needs: func(library string) ([]string, error) {
			text, err := os.ReadFile(library)
			if !bytes.HasPrefix(text, []byte("\x7fELF")) {
				return nil, errors.New("not a library")
			}
			return strings.Split(string(text), "\x00"), err
		},
	}
}

// examined returns doctor's table, and checks that it agrees with -json.
func examined(t *testing.T, c *checkup) string {
	t.Helper()
	var text, asJSON bytes.Buffer
	if status := c.command(nil, "1.2.3", &text, os.Stderr); status != 0 {
		t.Errorf("status %d, want 0:\n%s", status, text.String())
	}
	c.command([]string{"-json"}, "1.2.3", &asJSON, os.Stderr)
	var all struct{ Findings []finding }
	if err := json.Unmarshal(asJSON.Bytes(), &all); err != nil {
		t.Fatal(err)
	}
	for _, f := range all.Findings {
		if !strings.Contains(text.String(), f.Name) || !strings.Contains(text.String(), f.Text) || !strings.Contains(text.String(), f.Fix) {
			t.Errorf("%+v is not in the table", f)
		}
	}
	return strings.ReplaceAll(text.String(), c.root, "")
}

func wantAll(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%q is missing in\n%s", w, text)
		}
	}
}

func TestDoctorOfABareMachine(t *testing.T) {
	text := examined(t, newCheckup(t, map[string]string{"etc/os-release": "ID=ubuntu\nID_LIKE=debian\n"}, nil))
	wantAll(t, text, "ok  cores ", "ok  shared memory  works",
		"--  MPI library    none", "→ apt-get install openmpi-bin, or apt-get install mpich",
		"--  mpirun         none (Open MPI's, for jobs over several hosts)", "--  mpiexec.hydra  none (MPICH's,",
		"--  srun           none (Slurm's,", "→ apt-get install slurm-client",
		"--  CUDA           no NVIDIA GPU", "--  Go  ", "https://go.dev/dl",
		"--  C compiler     none", "→ apt-get install gcc libc6-dev", "--  /dev/shm       no such file or directory: MPI libraries keep")
	text = examined(t, newCheckup(t, map[string]string{"etc/os-release": `ID="rocky"` + "\n" + `ID_LIKE="rhel centos fedora"`}, nil))
	wantAll(t, text, "→ dnf install slurm", "→ dnf install gcc glibc-devel")
	wantAll(t, examined(t, newCheckup(t, nil, nil)), "→ install slurm-client (that is its name in Debian)")
}

func TestDoctorOfAWellEquippedMachine(t *testing.T) {
	text := examined(t, newCheckup(t, map[string]string{
		"etc/ld.so.conf":                        "include conf.d/*.conf # all\n/nowhere\n",
		"etc/conf.d/a.conf":                     "/opt/a/lib\n",
		"opt/a/lib/libmpi.so.40":                "\x7fELF\x00v%d.%d\x00v5.0.7\x00x",
		"usr/lib/libmpi.so.40":                  "\x7fELF\x00v4.1.6\x00",
		"usr/lib64/cudampi/lib/libmpi.so.12":    "\x7fELF\x00libcudart.so.12\x004.3.0\x00",
		"usr/lib64/mpich/lib/libnot.so":         "",
		"usr/lib/libmpich.so.12":                "\x7fELF\x00libc.so.6\x004.0.2\x00",
		"usr/lib/libmpi.so.12":                  "no version",
		"lib64/libcuda.so.1":                    "",
		"dev/shm/some":                          "",
		"dev/nvidia0":                           "",
		"dev/nvidia1":                           "",
		"dev/nvidiactl":                         "",
		"proc/driver/nvidia/version":            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue\n",
		"proc/self/cgroup":                      "0::/a/b\n",
		"sys/fs/cgroup/a/memory.max":            "1073741824\n",
		"sys/fs/cgroup/a/b/memory.max":          "max\n",
		"sys/class/unrelated":                   "",
		"proc/driver/nvidia/gpus/0/information": "Model: \t\t NVIDIA H200\nIRQ: 1\n",
	}, map[string]string{
		"go": "go version go1.26 linux/amd64\n", "gcc": "gcc 12\nmore\n",
		"mpirun":  "mpirun (Open MPI) 5.0.7\n\nReport",
		"mpiexec": "HYDRA build details:\n    Version:                                 4.0.2\n    Release",
		"srun":    "slurm 22.05.8\n", "ompi_info": "a:b\nompi:version:full:5.0.7\nmca:mpi:base:param:mpi_built_with_cuda_support:value:true\n",
	}))
	wantAll(t, text, "ok  memory         8.0 GiB, of which the control group may use 1.0 GiB",
		"ok  MPI library    Open MPI 5.0.7, /opt/a/lib/libmpi.so.40, CUDA-aware\n",
		"ok  MPI library    Open MPI 4.1.6, /usr/lib/libmpi.so.40\n", // ompi_info is another's
		"ok  MPI library    MPICH unknown version, /usr/lib/libmpi.so.12\n",
		"ok  MPI library    MPICH 4.0.2, /usr/lib/libmpich.so.12, not linked with CUDA\n",
		"ok  MPI library    MPICH 4.3.0, /usr/lib64/cudampi/lib/libmpi.so.12, CUDA-aware\n",
		"ok  mpirun         mpirun (Open MPI) 5.0.7, mpirun\n", "ok  mpiexec.hydra  MPICH 4.0.2, mpiexec\n",
		"ok  srun           slurm 22.05.8, srun\n",
		"ok  CUDA           2 GPUs (NVIDIA H200); /lib64/libcuda.so.1, driver 550.54.15\n",
		"ok  Go             go1.26 linux/amd64\n", "ok  C compiler     gcc 12\n")
	if strings.Contains(text, "--") || strings.Contains(text, "→") {
		t.Errorf("something is missing:\n%s", text)
	}
}

// What gorun builds lies in the temporary folder, and so do files of other launchers.
func TestDoctorTriesTheTemporaryFolder(t *testing.T) {
	c := newCheckup(t, nil, nil)
	wantAll(t, examined(t, c), "ok  temp folder    ", " can be written, and runs programs\n")
	c.run = func(argv ...string) (string, error) {
		return "", &os.PathError{Op: "fork/exec", Path: argv[0], Err: os.ErrPermission}
	}
	wantAll(t, examined(t, c), "--  temp folder    ", "lets no program run (noexec)", "→ let TMPDIR name another folder")
	t.Setenv("TMPDIR", "/nowhere")
	wantAll(t, examined(t, c), "--  temp folder    ", "gorun cannot build Go programs", "→ let TMPDIR name a folder that can be written")
}

func TestDoctorAsksTheDriver(t *testing.T) {
	lib := map[string]string{"lib64/libcuda.so.1": ""}
	text := examined(t, newCheckup(t, lib, map[string]string{
		"nvidia-smi": "NVIDIA H200, 143771, 9.0, 570.86.15\nNVIDIA H200, 143771, 9.0, 570.86.15\n"}))
	wantAll(t, text, "ok  CUDA           2 GPUs (NVIDIA H200, 140.4 GiB, compute capability 9.0); /lib64/libcuda.so.1, driver 570.86.15\n")
	text = examined(t, newCheckup(t, lib, map[string]string{
		"nvidia-smi": "NVIDIA H200, 143771, 9.0, 570.86.15\nTesla T4, [N/A], 7.5, 570.86.15\n"}))
	wantAll(t, text, "2 GPUs (1 × NVIDIA H200, 140.4 GiB, compute capability 9.0; 1 × Tesla T4, compute capability 7.5, "+
		"which is less than the 8.0 that tensors on a GPU need)")
	text = examined(t, newCheckup(t, lib, map[string]string{"nvidia-smi": "NVIDIA A100, 40960, 8.0, 470.57.02\n"}))
	wantAll(t, text, "driver 470.57.02, which is older than the 520 that tensors on a GPU need\n")
	text = examined(t, newCheckup(t, lib, map[string]string{"nvidia-smi": "No devices were found\n"}))
	wantAll(t, text, "--  CUDA           no NVIDIA GPU\n")
}

func TestDoctorSeesGPUsWithoutADriver(t *testing.T) {
	text := examined(t, newCheckup(t, map[string]string{"sys/bus/pci/devices/1/vendor": "0x10de\n",
		"sys/bus/pci/devices/1/class": "0x030200\n"}, nil))
	wantAll(t, text, "--  CUDA           a GPU on the bus, but no /dev/nvidia*")
	text = examined(t, newCheckup(t, map[string]string{"dev/nvidia0": ""}, nil))
	wantAll(t, text, "--  CUDA           1 GPU, but no libcuda.so.1", "libcuda1")
}

func TestDoctorRefusesArguments(t *testing.T) {
	var out, errs bytes.Buffer
	for args, says := range map[string]string{"x": `"x" is one argument too many`, "-x": "flag provided but not defined: -x"} {
		errs.Reset()
		want := "gorun doctor: " + says + "\nusage: gorun doctor"
		status := newCheckup(t, nil, nil).command([]string{args}, "1.2.3", &out, &errs)
		if status != 2 || !strings.HasPrefix(errs.String(), want) || out.Len() > 0 {
			t.Errorf("%s: status %d, want 2, and %q, %q", args, status, out.String(), errs.String())
		}
	}
	if status := newCheckup(t, nil, nil).command([]string{"-h"}, "1.2.3", &out, &errs); status != 0 ||
		!strings.HasPrefix(out.String(), "usage: gorun doctor") {
		t.Errorf("-h: status %d, want 0, and %q", status, out.String())
	}
}
