//go:build linux

package main

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

//go:embed torch/*.py c
var sources embed.FS

// ours is the name of our own program in the table.
const ours = "gorun"

// A program is one column of the table.
type program struct {
	name  string
	ranks func() []*exec.Cmd // the processes of one run, the first of which prints
}

// find returns our benchmark, then the peers that measure the same. missing lists the peers that
// it did not find, each with the reason. clean removes the files that find has made outside dir;
// it is never nil.
func find(ctx context.Context, o options, dir string) (found []*program, missing []string, clean func(), err error) {
	clean = func() {}
	bench, source := filepath.Join(dir, o.bench), "./bench/"+o.bench
	if o.bench == "dlrm" {
		source = "./bench/embedding"
	}
	if out, err := command("go", "build", "-o", bench, source).CombinedOutput(); err != nil {
		return nil, nil, clean, fmt.Errorf("go build %s: %w\n%s", source, err, out)
	}
	wanted := func(name string) bool {
		if o.only == "" {
			return true
		}
		for part := range strings.SplitSeq(o.only, ",") {
			if strings.Contains(name, part) {
				return true
			}
		}
		return false
	}
	args := []string{"-np", fmt.Sprint(o.np), bench, "-json", "-time", o.budget.String()}
	if o.match != "" {
		args = append(args, "-match", o.match)
	}
	if o.bench == "comm" {
		args = append(args, "-max", fmt.Sprint(o.max))
	}
	if o.bench == "dlrm" {
		args = append(args, "-dlrm")
	}
	if slices.Contains(narrow, o.bench) {
		args = append(args, "-dtype", o.dtype)
	}
	found = append(found, one(ours, func() *exec.Cmd { return command(o.gorun, args...) }))

	if o.bench == "comm" || o.bench == "loss" && o.dtype == "float32" {
		flags := []string{"-O3", "-march=native", "-ffast-math", "-pthread"}
		p, err := compiled("bound", "cc", dir, flags, "bound.c", func(binary string) *exec.Cmd {
			return command(binary, fmt.Sprint(o.np), seconds(o), o.match, fmt.Sprint(o.max))
		})
		found, missing = place(found, missing, p, err, wanted)
	}
	if o.bench == "comm" {
		for _, mpirun := range []string{"mpirun", "mpirun.openmpi5"} { // as make deps installs them: 4 and 5 have one ABI
			if _, err := exec.LookPath(mpirun); err != nil {
				missing = append(missing, fmt.Sprintf("an MPI library (no %s on PATH)", mpirun))
				continue
			}
			name := version(command(mpirun, "--version"))
			for _, source := range []string{"coll.c", "onesided.c", "messages.c"} {
				p, err := compiled(name, "mpicc", dir, []string{"-O3", "-march=native"}, source, func(binary string) *exec.Cmd {
					return command(mpirun, "--oversubscribe", "-np", fmt.Sprint(o.np), binary, seconds(o), o.match, fmt.Sprint(o.max))
				})
				found, missing = place(found, missing, p, err, wanted)
			}
		}
		for _, backend := range []struct{ name, tags string }{{"ours, mpi", ""}, {"ours, gompi", "gompi"}, {"ours, empi", "empi,mpi"}} {
			p, err := overMPI(o, dir, backend.name, backend.tags)
			found, missing = place(found, missing, p, err, wanted)
		}
	}
	python, err := findPython(ctx)
	if err != nil {
		return found, append(missing, "PyTorch ("+err.Error()+")"), clean, nil
	}
	if o.bench == "comm" && python.root != "" {
		p, err := python.coll(o)
		found, missing = place(found, missing, p, err, wanted)
	}
	for _, p := range python.programs(o) {
		found, missing = place(found, missing, p, nil, wanted)
	}
	return found, missing, python.clean, nil
}

// overMPI builds our own benchmark of collectives with tags, for mpirun.
func overMPI(o options, dir, name, tags string) (*program, error) {
	if _, err := exec.LookPath("mpirun"); err != nil {
		return nil, fmt.Errorf("%s (no mpirun on PATH)", name)
	}
	binary := filepath.Join(dir, "comm-"+strings.ReplaceAll(name, ", ", "-"))
	if out, err := command("go", "build", "-tags", tags, "-o", binary, "./bench/comm").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s (go build -tags %s: %v: %.200s)", name, tags, err, out)
	}
	return one(name, func() *exec.Cmd {
		return command("mpirun", "--oversubscribe", "-np", fmt.Sprint(o.np), binary, "-json", "-time", o.budget.String(), "-match", o.match,
			"-max", fmt.Sprint(o.max))
	}), nil
}

// place adds a program to found, or the reason why there is none to missing.
func place(found []*program, missing []string, p *program, err error, wanted func(string) bool) ([]*program, []string) {
	switch {
	case err != nil:
		return found, append(missing, err.Error())
	case !wanted(p.name):
		return found, missing
	}
	return append(found, p), missing
}

// one is a program of one process.
func one(name string, cmd func() *exec.Cmd) *program {
	return &program{name: name, ranks: func() []*exec.Cmd { return []*exec.Cmd{cmd()} }}
}

// compiled builds one of our C sources. The error names the missing part.
func compiled(name, compiler, dir string, flags []string, source string, run func(binary string) *exec.Cmd) (*program, error) {
	if _, err := exec.LookPath(compiler); err != nil {
		return nil, fmt.Errorf("%s (no %s on PATH)", name, compiler)
	}
	file, err := writeC(dir, source)
	if err != nil {
		return nil, err
	}
	binary := strings.TrimSuffix(file, ".c")
	if out, err := command(compiler, append(flags, "-o", binary, file, "-lm")...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s (%s: %v: %.200s)", name, compiler, err, out)
	}
	return one(name, func() *exec.Cmd { return run(binary) }), nil
}

// writeC writes one of our C sources, and the header of all, into a folder.
func writeC(dir, source string) (file string, err error) {
	for _, name := range []string{"measure.h", source} {
		text, err := sources.ReadFile("c/" + name)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, source), nil
}

// command returns a command with the environment of all programs here.
func command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1")
	return c
}

func seconds(o options) string { return fmt.Sprint(o.budget.Seconds()) }

// python is a Python interpreter that has torch.
type python struct {
	root    string // root of its file tree; "": this machine's
	scripts string // path of the folder with the scripts inside the tree
	clean   func()
}

// findPython looks for an interpreter with torch. The error names the missing part.
func findPython(ctx context.Context) (*python, error) {
	p := &python{}
	if exec.CommandContext(ctx, "python3", "-c", "import torch.distributed").Run() != nil {
		root := os.Getenv("PEERS_CHROOT")
		if root == "" {
			cache, err := os.UserCacheDir()
			if err != nil {
				return nil, err
			}
			root = filepath.Join(cache, "gorun-peers")
		}
		if _, err := os.Stat(filepath.Join(root, "usr/bin/python3")); err != nil {
			return nil, fmt.Errorf("python3 has no torch, and there is no tree with one at %s: set PEERS_CHROOT", root)
		}
		if os.Geteuid() != 0 {
			return nil, fmt.Errorf("the tree at %s needs root", root)
		}
		p.root = root
	}
	dir, err := os.MkdirTemp(filepath.Join(p.root, os.TempDir()), "peers")
	if err != nil {
		return nil, err
	}
	p.clean = func() { os.RemoveAll(dir) }
	from, err := fs.Sub(sources, "torch")
	if err != nil {
		return nil, err
	}
	if other := os.Getenv("PEERS_DIR"); other != "" {
		from = os.DirFS(other)
	}
	if err := os.CopyFS(dir, from); err != nil {
		p.clean()
		return nil, err
	}
	p.scripts = strings.TrimPrefix(dir, strings.TrimSuffix(p.root, "/"))
	return p, nil
}

// coll returns the benchmark of the MPI library in the tree.
func (p *python) coll(o options) (*program, error) {
	name := version(p.command(o, "", "mpirun", "--version")) + " in the tree"
	if _, err := writeC(filepath.Join(p.root, p.scripts), "coll.c"); err != nil {
		return nil, err
	}
	if out, err := p.command(o, "", "mpicc", "-O3", "-march=native", "-o", "coll", "coll.c").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s (mpicc: %v: %.200s)", name, err, out)
	}
	return one(name, func() *exec.Cmd {
		return p.command(o, "", "mpirun", "--oversubscribe", "-np", fmt.Sprint(o.np), "./coll", seconds(o), o.match, fmt.Sprint(o.max))
	}), nil
}

// version returns the name and version of an MPI library, as its mpirun prints them:
// "Open MPI 4.1.4".
func version(mpirun *exec.Cmd) string {
	out, err := mpirun.Output()
	if err != nil {
		return "MPI"
	}
	line, _, _ := strings.Cut(string(out), "\n")
	if _, v, ok := strings.Cut(line, "(Open MPI) "); ok {
		return "Open MPI " + strings.TrimSpace(v)
	}
	return "MPI"
}

// programs returns the ways to run the script of the benchmark: as one process, over
// gloo and over MPI.
func (p *python) programs(o options) []*program {
	script := o.bench + ".py"
	single := &program{name: "torch 1 rank", ranks: func() []*exec.Cmd {
		return []*exec.Cmd{p.command(o, "", "python3", script)}
	}}
	if o.np == 1 || o.bench == "kernels" || o.bench == "gemm" || o.bench == "dlrm" {
		return []*program{single}
	}
	gloo := &program{name: "torch gloo", ranks: func() []*exec.Cmd {
		port := freePort()
		ranks := make([]*exec.Cmd, o.np)
		for r := range ranks {
			ranks[r] = p.command(o, "gloo", "python3", script)
			ranks[r].Env = append(ranks[r].Env, fmt.Sprintf("RANK=%d", r), fmt.Sprintf("LOCAL_RANK=%d", r), fmt.Sprintf("WORLD_SIZE=%d", o.np),
				fmt.Sprintf("LOCAL_WORLD_SIZE=%d", o.np), "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port)
		}
		return ranks
	}}
	mpi := &program{name: "torch mpi", ranks: func() []*exec.Cmd {
		return []*exec.Cmd{p.command(o, "mpi", "mpirun", "--oversubscribe", "-np", fmt.Sprint(o.np), "python3", script)}
	}}
	if o.bench == "comm" || o.bench == "redistribute" {
		return []*program{gloo, mpi}
	}
	return []*program{single, gloo, mpi}
}

// command returns a command in the tree, with torch tuned.
func (p *python) command(o options, backend, name string, args ...string) *exec.Cmd {
	c := command(name, args...)
	if p.root != "" {
		c.Path, c.Err = "/usr/bin/"+name, nil
		c.SysProcAttr = &syscall.SysProcAttr{Chroot: p.root}
		c.Env = append(c.Env, "PATH=/usr/bin:/bin", "HOME=/root")
	}
	c.Dir = p.scripts
	c.Env = append(c.Env, "PEER_BACKEND="+backend, "PEER_TIME="+seconds(o), "PEER_MATCH="+o.match, "PEER_DTYPE="+o.dtype,
		"PEER_MAX="+fmt.Sprint(o.max),
		"PYTHONDONTWRITEBYTECODE=1", "PYTHONWARNINGS=ignore", "TORCH_CPP_LOG_LEVEL=ERROR", "USE_LIBUV=0", "GLOO_SOCKET_IFNAME=lo",
		"MALLOC_MMAP_MAX_=0", "MALLOC_TRIM_THRESHOLD_=100000000000", "MALLOC_TOP_PAD_=268435456")
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil && strings.Contains(string(text), " avx512f ") {
		c.Env = append(c.Env, "OPENBLAS_CORETYPE=SkylakeX")
	}
	return c
}

// freePort returns a port on which nobody listens at the moment.
func freePort() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "29511"
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return "29511"
	}
	return port
}
