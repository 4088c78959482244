package hosts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// samples is the folder of the files that the documentation points to.
const samples = "../../hostfiles"

// TestSamples reads every sample in the format that it names, and checks Detect where the sample
// promises that.
func TestSamples(t *testing.T) {
	known := map[string]struct {
		format Format // to give
		found  Format // to detect
		want   string
	}{
		"two-nodes":   {Auto, OpenMPI, "node1 slots=4, node2 slots=4 max_slots=8"},
		"mpich":       {Auto, MPICH, "node1 slots=4, train@node2 slots=2"},
		"plain":       {Auto, Plain, "node1, node2, node3"},
		"pbs":         {PBS, Plain, "node1 slots=2, node2 slots=2"},
		"sge":         {Auto, SGE, "node1 slots=4, node2 slots=2"},
		"lsf":         {Auto, LSF, "node1 slots=4, node2 slots=2"},
		"slurm-nodes": {Auto, Slurm, "node01, node02, node03, node04, node7, login"},
	}
	files, err := os.ReadDir(samples)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range files {
		text := sample(t, f.Name())
		if !strings.HasPrefix(text, "#") {
			t.Errorf("%s does not start with a comment that says what it is", f.Name())
		}
		k, ok := known[f.Name()]
		if !ok {
			if ext := filepath.Ext(f.Name()); ext != ".sbatch" && ext != ".yaml" {
				t.Errorf("no test knows %s", f.Name())
			}
			continue
		}
		seen++
		list, warnings, err := Parse(f.Name(), []byte(text), k.format)
		if got := joined(list); got != k.want || err != nil || len(warnings) > 0 || Detect([]byte(text)) != k.found {
			t.Errorf("%s: %s, %v, %v, detected as %v", f.Name(), got, warnings, err, Detect([]byte(text)))
		}
	}
	if seen != len(known) {
		t.Errorf("%d of %d samples are there", seen, len(known))
	}
}

func sample(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(samples, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestSlurmScript checks the batch script: bash can parse it, and FromEnv finds the allocation
// that it asks for.
func TestSlurmScript(t *testing.T) {
	text := sample(t, "slurm.sbatch")
	cmd := exec.Command("bash", "-n")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("bash -n: %v\n%s", err, out)
	}
	options := map[string]string{}
	for line := range strings.Lines(text) {
		if o, ok := strings.CutPrefix(line, "#SBATCH --"); ok {
			name, value, _ := strings.Cut(strings.TrimSpace(o), "=")
			options[name] = value
		}
	}
	nodes, err1 := strconv.Atoi(options["nodes"])
	each, err2 := strconv.Atoi(options["ntasks-per-node"])
	if err1 != nil || err2 != nil {
		t.Fatalf("options %v", options)
	}
	env := map[string]string{
		"SLURM_JOB_NODELIST":   fmt.Sprintf("n[1-%d]", nodes),
		"SLURM_TASKS_PER_NODE": fmt.Sprintf("%d(x%d)", each, nodes),
	}
	a, ok, err := FromEnv(func(k string) (string, bool) { v, ok := env[k]; return v, ok }, os.ReadFile)
	if !ok || err != nil || Slots(a.Hosts, 0) != nodes*each {
		t.Errorf("allocation %v, %v, %v", a, ok, err)
	}
	if !strings.Contains(text, "\nexec gorun --grace 50s -np \"$SLURM_NTASKS\" ./train\n") {
		t.Error("the script does not run gorun with Slurm's number of tasks")
	}
}

// TestMPIJob checks the numbers of the MPIJob against each other: ranks are
// workers times slots. The module has no reader of YAML, so lines are matched.
func TestMPIJob(t *testing.T) {
	text := sample(t, "mpijob.yaml")
	number := func(pattern string) int {
		m := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("no %s", pattern)
		}
		n, _ := strconv.Atoi(m[1])
		return n
	}
	slots := number(`\n  slotsPerWorker: (\d+)\n`)
	workers := number(`\n    Worker:\n      replicas: (\d+)\n`)
	np := number(`"-np", "(\d+)"`)
	if slots*workers != np || number(`\n    Launcher:\n      replicas: (\d+)\n`) != 1 || number(`cpu: "(\d+)"`) != slots {
		t.Errorf("%d ranks for %d workers with %d slots each", np, workers, slots)
	}
	for i, line := range strings.Split(text, "\n") {
		if strings.Contains(line, "\t") && !strings.HasPrefix(line, "#") || (len(line)-len(strings.TrimLeft(line, " ")))%2 != 0 {
			t.Errorf("mpijob.yaml:%d: indentation %q", i+1, line)
		}
	}
	for _, want := range []string{"apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\n", `"--hostfile", "/etc/mpi/hostfile"`,
		"mpiImplementation: OpenMPI"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
}
