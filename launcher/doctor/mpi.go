//go:build linux

package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/launcher/hosts"
	"github.com/gorun-spmd/gorun/launcher/phrase"
)

// An mpiKind is a family of MPI libraries with one ABI. Intel MPI, MVAPICH and Cray's library
// have MPICH's ABI, with version numbers of their own.
type mpiKind struct {
	soname, name string
	version      *regexp.Regexp // finds the version in the library's file, as a C string; nil if it cannot be found
}

func mpiKinds() []mpiKind {
	mpich := regexp.MustCompile(`\x00([3-9]\.[0-9]+(?:\.[0-9]+)?(?:[abrc]+[0-9]+)?)\x00`)
	return []mpiKind{
		{"libmpi.so.40", "Open MPI", regexp.MustCompile(`\x00v([0-9]+\.[0-9]+\.[0-9]+[0-9a-z]*)\x00`)},
		{"libmpi.so.12", "MPICH", mpich},
		{"libmpich.so.12", "MPICH", mpich},
		{"libmpi_abi.so.0", "MPI 5 (standard ABI)", nil},
	}
}

// mpiLibraries returns the MPI libraries that a rank could load.
func (c *checkup) mpiLibraries() []finding {
	var found []finding
	for _, kind := range mpiKinds() {
		for _, path := range c.libraries(kind.soname) {
			version := kind.versionOf(path)
			text := fmt.Sprintf("%s %s, %s", kind.name, version, path)
			found = append(found, finding{Name: "MPI library", OK: true, Text: text + c.cudaAware(kind, version, path)})
		}
	}
	if found == nil {
		found = []finding{{Name: "MPI library", Text: "none: needed only for jobs on several hosts over MPI",
			Fix: c.install("openmpi-bin", "openmpi") + ", or " + c.install("mpich", "mpich")}}
	}
	return found
}

// versionOf reads the version that a library prints out of its file.
func (k *mpiKind) versionOf(path string) string {
	const most = 256 << 20
	if info, err := os.Stat(path); err != nil || info.Size() > most || k.version == nil {
		return "unknown version"
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "unknown version"
	}
	if v := k.version.FindSubmatch(data); v != nil {
		return string(v[1])
	}
	return "unknown version"
}

// cudaAware returns a text that says whether a library was built to take addresses of CUDA
// devices, or "". For Open MPI it asks ompi_info of the same version, beside the library or in
// PATH. For other libraries it looks at the libraries with which they are linked. A rank asks
// the library itself when it has loaded it.
func (c *checkup) cudaAware(kind mpiKind, version, path string) string {
	if kind.name != "Open MPI" {
		needs, err := c.needs(path)
		switch {
		case err != nil:
			return ""
		case slices.ContainsFunc(needs, func(lib string) bool { return strings.HasPrefix(lib, "libcuda") }):
			return ", CUDA-aware"
		}
		return ", not linked with CUDA"
	}
	info := filepath.Join(filepath.Dir(path), "../bin/ompi_info")
	if _, err := os.Stat(info); err != nil {
		if info, err = c.find("ompi_info"); err != nil {
			return ""
		}
	}
	out, err := c.run(info, "--parsable", "--all")
	_, rest, ok := strings.Cut(out, "mpi_built_with_cuda_support:value:")
	switch {
	case err != nil || !ok || !strings.Contains(out, "ompi:version:full:"+version+"\n"):
		return ""
	case strings.HasPrefix(rest, "true"):
		return ", CUDA-aware"
	}
	return ", not CUDA-aware"
}

// mpiLaunchers returns the launchers to which gorun could hand a job.
func (c *checkup) mpiLaunchers() []finding {
	var found []finding
	seen := ""
	for _, l := range hosts.Launchers() {
		if l.Via == seen { // another version of it
			continue
		}
		seen = l.Via
		f := finding{Name: l.String()}
		path, err := c.find(l.String())
		if err != nil && l.Also != "" {
			path, err = c.find(l.Also)
		}
		if err != nil {
			f.Text, f.Fix = "none ("+l.Use+")", c.install(l.Debian, l.Fedora)
		} else {
			out, err := c.run(path, "--version")
			f.OK, f.Text = err == nil, mpiVersion(out)+", "+path
			if err != nil {
				f.Text = fmt.Sprintf("%s (%s) does not work: %v: %s", path, l.Use, err, lastLine(out))
			}
		}
		found = append(found, f)
	}
	return found
}

// mpiVersion returns the most telling line of a launcher's answer to --version.
func mpiVersion(out string) string {
	for line := range strings.Lines(out) {
		if name, version, ok := strings.Cut(line, "Version:"); ok && strings.TrimSpace(name) == "" {
			return "MPICH " + strings.TrimSpace(version) // hydra: "HYDRA build details:", then this
		}
	}
	return phrase.FirstLine(out)
}

// libraries returns the files named soname in the dynamic loader's folders, each file once.
func (c *checkup) libraries(soname string) []string {
	var found, real []string
	for _, dir := range c.loaderPaths() {
		path := filepath.Join(c.root, dir, soname)
		target, err := filepath.EvalSymlinks(path)
		if err != nil || slices.Contains(real, target) {
			continue
		}
		found, real = append(found, path), append(real, target)
	}
	return found
}

// loaderPaths returns the folders in which ld.so looks, see ld.so(8), and the folders of MPI
// packages that are not among those.
func (c *checkup) loaderPaths() []string {
	dirs := filepath.SplitList(c.env("LD_LIBRARY_PATH"))
	dirs = append(dirs, c.loaderConfig("/etc/ld.so.conf", 0)...)
	dirs = append(dirs, "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib")
	for _, pattern := range []string{"/usr/lib64/*mpi*/lib", "/opt/*mpi*/lib"} {
		more, _ := filepath.Glob(c.root + pattern)
		for _, dir := range more {
			dirs = append(dirs, strings.TrimPrefix(dir, c.root))
		}
	}
	return slices.DeleteFunc(dirs, func(dir string) bool { return dir == "" })
}

// loaderConfig reads ld.so.conf. A line is a folder, or include and patterns.
func (c *checkup) loaderConfig(name string, depth int) (dirs []string) {
	text, err := os.ReadFile(c.root + name)
	if err != nil || depth > 4 {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case fields[0] == "include":
			for _, pattern := range fields[1:] {
				if !filepath.IsAbs(pattern) {
					pattern = filepath.Join(filepath.Dir(name), pattern)
				}
				files, _ := filepath.Glob(c.root + pattern)
				for _, f := range files {
					dirs = append(dirs, c.loaderConfig(strings.TrimPrefix(f, c.root), depth+1)...)
				}
			}
		default:
			dirs = append(dirs, fields[0])
		}
	}
	return dirs
}

// lastLine returns the last line of a program's output, where most programs say why they end.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return phrase.Printable(text[strings.LastIndexByte(text, '\n')+1:])
}
