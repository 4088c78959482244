//go:build linux && !nolibs

package mpi

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ebitengine/purego"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/testenv"
)

func TestChooseABI(t *testing.T) {
	for _, test := range []struct {
		version string
		want    *abi
	}{
		{"Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022", &openMPI},
		{"Open MPI v5.0.7, package: Debian OpenMPI", &openMPI},
		{"IBM Spectrum MPI 10.4", &openMPI},
		{"MPICH Version:\t4.0.2\nMPICH Release date:\tThu Apr  7 12:34:45 CDT 2022", &mpich},
		{"Intel(R) MPI Library 2021.9 for Linux* OS", &mpich},
		{"MVAPICH2 Version      :\t2.3.7", &mpich},
		{"MPI VERSION    : CRAY MPICH version 8.1.25", &mpich},
	} {
		if got, err := chooseABI(test.version); got != test.want || err != nil {
			t.Errorf("%q: got %v, %v", test.version, got, err)
		}
	}
	if _, err := chooseABI("Some MPI 1.0\nof theirs"); err == nil || strings.Contains(err.Error(), "theirs") ||
		!strings.Contains(err.Error(), `"Some MPI 1.0"`) {
		t.Errorf("an unknown library: %v", err)
	}
}

// Each ABI has each handle exactly once.
func TestABIs(t *testing.T) {
	for _, a := range []*abi{&openMPI, &mpich} {
		values, symbols := map[uintptr]constant{}, map[string]constant{}
		for c := range constants {
			v, s := a.values[c], a.symbols[c]
			if (v == 0) == (s == "") {
				t.Errorf("%s: handle %d is %#x and %q, want one of the two", a.name, c, v, s)
			}
			if other, ok := values[v]; ok && v != 0 {
				t.Errorf("%s: handles %d and %d are both %#x", a.name, other, c, v)
			}
			if other, ok := symbols[s]; ok && s != "" {
				t.Errorf("%s: handles %d and %d are both %q", a.name, other, c, s)
			}
			values[v], symbols[s] = c, c
		}
	}
	for f, name := range functionNames {
		if !strings.HasPrefix(name, "MPI_") {
			t.Errorf("function %d is %q", f, name)
		}
	}
}

func TestCandidates(t *testing.T) {
	for _, test := range []struct {
		name  string
		env   map[string]string
		first string
		all   bool
	}{
		{"alone", nil, "libmpi.so.40", true},
		{"Open MPI", map[string]string{"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_RANK": "0"}, "libmpi.so.40", true},
		{"hydra", map[string]string{"PMI_RANK": "0", "PMI_SIZE": "2"}, "libmpich.so.12", true},
		{"srun with pmix", map[string]string{"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "PMIX_RANK": "0"},
			"libmpi.so.40", true},
		{"srun with pmi2", map[string]string{"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "PMI_RANK": "0",
			"PMI_SIZE": "2"}, "libmpich.so.12", true},
		{"named", map[string]string{"PMI_RANK": "0", "PMI_SIZE": "2", libraryVariable: "libmine.so"}, "libmine.so", false},
	} {
		env := func(name string) (string, bool) { v, ok := test.env[name]; return v, ok }
		launch, _ := Detect(env)
		got := candidates(env, launch)
		if got[0] != test.first || (len(got) > 1) != test.all {
			t.Errorf("%s: got %v, want %s first", test.name, got, test.first)
		}
		if test.all && (!slices.Contains(got, "libmpi.so.40") || !slices.Contains(got, "libmpich.so.12")) {
			t.Errorf("%s: got %v, want both families", test.name, got)
		}
	}
}

func TestLoadMissing(t *testing.T) {
	for _, test := range []struct {
		names []string
		want  []string
	}{
		{[]string{"libno-such-mpi.so.1"}, []string{libraryVariable + "=libno-such-mpi.so.1", "name an installed MPI library"}},
		{[]string{"libno-such-mpi.so.1", "libno-such-mpi.so.2"}, []string{"no MPI library found", "install openmpi-bin (Open MPI) or mpich"}},
		{[]string{"libc.so.6"}, []string{"libc.so.6", "MPI_Get_library_version", "install openmpi-bin or mpich"}},
	} {
		_, err := load(test.names)
		if err == nil {
			t.Errorf("%v: loaded", test.names)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v: got %q, want %q in it", test.names, err, want)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: more than one line: %q", test.names, err)
		}
	}
}

// The variables reach the C library, whose environment is a copy of Go's.
func TestQuiet(t *testing.T) {
	t.Setenv("UCX_HANDLE_ERRORS", "freeze")
	t.Setenv("UCX_ERROR_SIGNALS", "") // restored after the test
	t.Setenv("UCX_LOG_LEVEL", "")
	if err := os.Unsetenv("UCX_LOG_LEVEL"); err != nil {
		t.Fatal(err)
	}
	if err := quiet(); err != nil {
		t.Fatal(err)
	}
	libc, err := purego.Dlopen("libc.so.6", purego.RTLD_NOW)
	if err != nil {
		t.Fatal(err)
	}
	var getenv func(string) string
	purego.RegisterLibFunc(&getenv, libc, "getenv")
	for name, want := range map[string]string{"UCX_LOG_LEVEL": "error", "UCX_HANDLE_ERRORS": "freeze"} {
		if got := getenv(name); got != want {
			t.Errorf("C sees %s=%q, want %q", name, got, want)
		}
	}
}

// What is left to the library means the same there.
func TestNativeOp(t *testing.T) {
	for _, test := range []struct {
		op   comm.Op
		d    comm.DType
		want constant
		ok   bool
	}{
		{comm.Sum, comm.Float32, opSum, true},
		{comm.Avg, comm.Float64, opSum, true},
		{comm.Prod, comm.Float64, opProd, true},
		{comm.Max, comm.Float32, 0, false}, // NaN
		{comm.Min, comm.Int64, opMin, true},
		{comm.Sum, comm.Int32, opSum, true},
		{comm.Sum, comm.Uint8, 0, false}, // saturation
		{comm.Max, comm.Uint8, 0, false}, // signs
		{comm.And, comm.Uint8, opAnd, true},
		{comm.Max, comm.Bool, opMax, true},
		{comm.Or, comm.Bool, opOr, true},
		{comm.Sum, comm.Float16, 0, false},
		{comm.Sum, comm.BFloat16, 0, false},
		{comm.Custom, comm.Uint8, 0, false},
	} {
		got, ok := nativeOp(test.op, test.d)
		if ok != test.ok || ok && got != test.want {
			t.Errorf("%v on %v: got %d, %v", test.op, test.d, got, ok)
		}
	}
}

// A library of another launcher is noticed, since it makes each rank alone.
func TestForeignLibrary(t *testing.T) {
	if _, err := load(mpichNames[:1]); err != nil {
		testenv.Missing(t, err)
	}
	l := launchers[0]
	testenv.NeedPrograms(t, l.command[0])
	out, err := l.run(t, 2, "suite", "MPI_TEST_SIZE=2", libraryVariable+"="+mpichNames[0])
	for _, want := range []string{"started 2 ranks and MPICH", "sees 1", "name the launcher's own library in " + libraryVariable} {
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("%v, no %q in:\n%s", err, want, out)
		}
	}
}
