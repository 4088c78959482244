//go:build linux

package doctor

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	goruntime "runtime"
	"strings"
	"text/tabwriter"

	"github.com/gorun-spmd/gorun/launcher/options"
)

const doctorUsage = `usage: gorun doctor [-json]

Says what this machine offers to a job: cores, memory, shared memory, MPI
libraries and launchers, GPUs, and what building and testing need. What is missing
comes with what it is for and the command that installs it.

  -json   one JSON object

The exit status is 0 if gorun itself has what it needs, else 1.
`

// A finding is one thing that a job could use.
type finding struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Text string `json:"text"`          // its description, or the consequence of its absence
	Need bool   `json:"need"`          // no job runs without it
	Fix  string `json:"fix,omitempty"` // how to get it
}

// A checkup gives doctor access to a machine. Tests have machines of their own.
type checkup struct {
	root string // prefix of all files; "" for the machine's own
	env  func(string) string
	find func(program string) (path string, err error)
	run  func(argv ...string) (output string, err error)
	// needs returns the names of the shared libraries with which library is linked.
	needs func(library string) ([]string, error)
}

// Main is the command gorun doctor.
func Main(args []string, version string, stdout io.Writer) int {
	return thisCheckup().command(args, version, stdout, os.Stderr)
}

// command runs gorun doctor on the machine of c.
func (c *checkup) command(args []string, version string, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("gorun doctor", flag.ContinueOnError)
	asJSON := f.Bool("json", false, "")
	if status, done := options.ParseCommand(f, args, 0, doctorUsage, stdout, stderr); done {
		return status
	}
	findings := c.examine()
	status := 0
	for _, it := range findings {
		if it.Need && !it.OK {
			status = 1
		}
	}
	host, _ := os.Hostname()
	if *asJSON {
		out := json.NewEncoder(stdout)
		out.SetIndent("", "  ")
		_ = out.Encode(map[string]any{
			"gorun": version, "host": host, "os": goruntime.GOOS, "arch": goruntime.GOARCH, "findings": findings,
		})
		return status
	}
	fmt.Fprintf(stdout, "gorun %s on %s, %s/%s\n\n", version, host, goruntime.GOOS, goruntime.GOARCH)
	writeFindings(stdout, findings)
	return status
}

// writeFindings writes a table, and marks the findings that are missing.
func writeFindings(w io.Writer, findings []finding) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, it := range findings {
		mark := "ok"
		switch {
		case !it.OK && it.Need:
			mark = "!!"
		case !it.OK:
			mark = "--"
		}
		for i, line := range strings.Split(it.Text, "\n") {
			if i > 0 {
				mark, it.Name = "", ""
			}
			fmt.Fprintf(t, "%s\t%s\t%s\n", mark, it.Name, line)
		}
		if it.Fix != "" {
			fmt.Fprintf(t, "\t\t→ %s\n", it.Fix)
		}
	}
	_ = t.Flush()
}

// examine returns all findings.
func (c *checkup) examine() []finding {
	findings := []finding{c.cores(), c.memory(), sharedMemory(), openFileLimit()}
	findings = append(findings, c.mpiLibraries()...)
	findings = append(findings, c.mpiLaunchers()...)
	findings = append(findings, c.sharedFolder(), c.temporaryFolder())
	return append(findings, c.gpus(), c.goCommand(), c.compiler())
}

// install returns the command that installs a package. debian is the package's name in Debian
// and its derivatives, fedora its name in Fedora and its derivatives.
func (c *checkup) install(debian, fedora string) string {
	release, _ := os.ReadFile(c.root + "/etc/os-release")
	var like string
	for line := range strings.Lines(string(release)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && (name == "ID" || name == "ID_LIKE") {
			like += " " + strings.Trim(value, `"`)
		}
	}
	switch {
	case strings.Contains(like, "debian") || strings.Contains(like, "ubuntu"):
		return "apt-get install " + debian
	case strings.Contains(like, "fedora") || strings.Contains(like, "rhel"):
		return "dnf install " + fedora
	}
	return "install " + debian + " (that is its name in Debian)"
}
