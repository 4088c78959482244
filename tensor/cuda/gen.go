//go:build ignore

// Gen makes kernels/*.ptx from kernels/*.cu with nvcc, and from these kernels/sm_*.zip, the
// machine code for some GPUs. It fails if a kernel spills registers. kernels/SUMS has the
// hashes of sources and results. With -verify it changes nothing and fails if it would.
package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// The virtual architecture is that of the oldest GPU with bfloat16; the driver
// compiles its code for newer ones. Without -fmad=false the compiler would contract
// a·b + c to one rounding where the CPU does not.
var flags = []string{"-ptx", "-arch=compute_80", "-fmad=false", "-O3", "-std=c++14"}

// internal matches the prefix that nvcc gives the names of a file's static functions. It
// has a hash of the path of the file.
var internal = regexp.MustCompile(`_INTERNAL_[0-9a-f]{8}_`)

// version is the version of nvcc whose output is in the repository.
const version = "V11.8.89"

func main() {
	log.SetFlags(0)
	verify := flag.Bool("verify", false, "change nothing; fail if something would change")
	flag.Parse()
	out, err := exec.Command("nvcc", "--version").CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) && *verify {
		fmt.Println("kernels/*.ptx not made again: nvcc is not installed (make deps-ptx)")
		return
	}
	if err != nil {
		log.Fatalf("nvcc: %v: make deps-ptx installs it\n%s", err, out)
	}
	if !bytes.Contains(out, []byte(version)) {
		if *verify {
			fmt.Printf("kernels/*.ptx not made again: this nvcc is not %s\n", version)
			return
		}
		log.Fatalf("this nvcc is not %s, whose output is kept:\n%s", version, out)
	}
	sources, _ := filepath.Glob("kernels/*.cu")
	var headers []byte
	for _, name := range []string{"common.h", "ops.h"} {
		text, err := os.ReadFile("kernels/" + name)
		check(err)
		headers = append(headers, text...)
	}
	work, err := os.MkdirTemp("", "ptx")
	check(err)
	defer os.RemoveAll(work)
	var sums strings.Builder
	for _, source := range sources {
		text, err := os.ReadFile(source)
		check(err)
		made := filepath.Join(work, "made.ptx")
		cmd := exec.Command("nvcc", append(flags, source, "-o", made)...)
		cmd.Stderr = os.Stderr
		check(cmd.Run())
		ptx, err := os.ReadFile(made)
		check(err)
		ptx = internal.ReplaceAll(ptx, []byte("_INTERNAL_"))
		check(os.WriteFile(made, ptx, 0o666))
		fmt.Fprintf(&sums, "%s %x %x", filepath.Base(source), sha256.Sum256(append(bytes.Clone(headers), text...)), sha256.Sum256(ptx))
		write(strings.TrimSuffix(source, ".cu")+".ptx", ptx, *verify)
		for _, m := range machines {
			cubin := assemble(m.name, source, made)
			f, err := m.zip.Create(strings.TrimSuffix(filepath.Base(source), ".cu") + ".cubin")
			check(err)
			_, err = f.Write(cubin)
			check(err)
			fmt.Fprintf(&sums, " %x", sha256.Sum256(cubin))
		}
		fmt.Fprintln(&sums)
	}
	for _, m := range machines {
		check(m.zip.Close())
		write("kernels/"+m.name+".zip", m.file.Bytes(), *verify)
	}
	write("kernels/SUMS", []byte(sums.String()), *verify)
}

// machines are the architectures that get machine code, for compute capability 8.x and 9.0,
// because the driver takes a while to compile PTX.
var machines = []*machine{newMachine("sm_80"), newMachine("sm_90")}

type machine struct {
	name string
	file bytes.Buffer
	zip  *zip.Writer
}

func newMachine(name string) *machine {
	m := &machine{name: name}
	m.zip = zip.NewWriter(&m.file)
	return m
}

// launch is the size of a block.
const launch = 256

// used matches the assembler's report on a kernel.
var used = regexp.MustCompile(`(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads\n.* Used (\d+) registers`)

// assemble makes machine code as the driver would. It fails if a kernel spills registers to
// memory or a block needs more registers than there are. The assembler itself fails if a
// block needs too much shared memory.
func assemble(machine, source, ptx string) (cubin []byte) {
	out, err := exec.Command("ptxas", "-v", "-arch="+machine, ptx, "-o", ptx+".cubin").CombinedOutput()
	if err != nil {
		log.Fatalf("ptxas -arch=%s %s: %v\n%s", machine, filepath.Base(source), err, out)
	}
	kernels := used.FindAllSubmatch(out, -1)
	if len(kernels) == 0 {
		log.Fatalf("ptxas -arch=%s %s says nothing of kernels:\n%s", machine, filepath.Base(source), out)
	}
	for _, k := range kernels {
		registers, err := strconv.Atoi(string(k[4]))
		check(err)
		if string(k[1])+string(k[2])+string(k[3]) != "000" || registers*launch > 1<<16 {
			log.Fatalf("ptxas -arch=%s %s: %s", machine, filepath.Base(source), k[0])
		}
	}
	cubin, err = os.ReadFile(ptx + ".cubin")
	check(err)
	return cubin
}

func write(path string, text []byte, verify bool) {
	old, _ := os.ReadFile(path)
	switch {
	case bytes.Equal(old, text):
	case verify:
		log.Fatalf("%s is not what nvcc makes of its source: run go generate ./tensor/cuda", path)
	default:
		check(os.WriteFile(path, text, 0o666))
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
