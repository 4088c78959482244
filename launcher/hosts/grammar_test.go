package hosts

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestGrammars tests the grammar of each format, rule by rule: the hosts of a file, or the
// part of its error that matters.
func TestGrammars(t *testing.T) {
	for _, c := range []struct {
		format     Format
		text, want string
	}{
		{OpenMPI, "n slots\v=\f2\tmax_cpu = 3\n", "n slots=2 max_slots=3"},
		{OpenMPI, "n count-max=3 count=1", "n slots=1 max_slots=3"},
		{OpenMPI, "n max-count=3", "n slots=3 max_slots=3"},
		{OpenMPI, "n slots_max=3\nn", "n slots=2 max_slots=3"},
		{OpenMPI, "n user-name=bob port=22", "bob@n port=22"},
		{OpenMPI, "n user_name=bob#c\nm slots=2//c", "bob@n, m slots=2"},
		{OpenMPI, "/* a\nb */ n slots=2 /* c */ max_slots=3", "n slots=2 max_slots=3"},
		{OpenMPI, "n.a slots=1\nn.b slots=2", "n.a slots=1, n.b slots=2"},
		{OpenMPI, "n.a\nn", "n.a slots=2, warning f:2:1: n is taken for n.a of line 1"},
		{OpenMPI, "n\nn slots=2", "f:2:1: n is on line 1 already"},
		{OpenMPI, "n slots=2\nn", "f:2:1: n is on line 1 already"},
		{OpenMPI, "n max_slots=1\nn\nn", "f:1:13: max_slots 1 below the 3 slots"},
		{OpenMPI, "n max_slots=5\nn max_slots=6", "f:2:13: max_slots 6 for n, which has 5"},
		{OpenMPI, "a@n\nb@n", "f:2:1: user b for n"},
		{OpenMPI, "n port=1\nn port=2", "f:2:1: port 2 for n"},
		{OpenMPI, "a@n username=b", "f:1:5: username for a@n"},
		{OpenMPI, "slots=2", "f:1:1: no host before"},
		{OpenMPI, "n = 2", "f:1:1: no host before"},
		{OpenMPI, "n slots=2 = 3", "f:1:11: no key before"},
		{OpenMPI, "n slots=max_slots=3", "f:1:9: slots without a number"},
		{OpenMPI, "n slots=+2", "not a number"},
		{OpenMPI, "n slots=0x2", "not a number"},
		{OpenMPI, "n port=65536", "out of range"},
		{OpenMPI, "a@b@c slots=1", "f:1:4: a@b@c: a second @"},
		{OpenMPI, "-n slots=1", "f:1:1: -n: a host's name does not start with -"},
		{OpenMPI, "n binding=core", "binding= is MPICH's"},
		{OpenMPI, "\xc3\xa9 slots=1", `f:1:1: "\u00e9": not a host's name`},
		{OpenMPI, strings.Repeat("x", 256) + " slots=1", "a host's name of 256 bytes"},
		{MPICH, "a:2\nb\na", "a slots=2, b slots=1, a slots=1"},
		{MPICH, "u@a user=v", "f:1:5: user= for u@a"},
		{MPICH, "a binding=", "f:1:11: binding= without a value"},
		{MPICH, "slots=2", "f:1:1: slots=2: no host"},
		{MPICH, "fe80::1%eth0", "f:1:1: fe80::1%eth0: MPICH would read this IPv6 address"},
		{MPICH, "a:1048576\na", "f:2:1: slots of a: more than"},
		{Plain, "a\nb # c\n\n", "a, b"},
		{Plain, "a\nb\na", "a slots=1, b slots=1, a slots=1"},
		{Plain, "\xef\xbb\xbfa", "f:1:1: a byte order mark"},
		{PBS, "a\r\na\r\nb\r\n", "a slots=2, b slots=1"},
		{PBS, "a b", "f:1:3: b after the host"},
		{SGE, "a 2 all.q UNDEFINED\nb 3 all.q <NULL>", "a slots=2, b slots=3"},
		{SGE, "a x all.q UNDEFINED", "f:1:3: slots of a x: not a number"},
		{SGE, "a", "f:1:1: 1 words"},
		{LSF, "a 2 b 3", "a slots=2, b slots=3"},
		{LSF, "a 2 b", "f:1:5: b without a number"},
		{Slurm, "n[1-2],m", "n1, n2, m"},
		{Slurm, "n,m,n", "n slots=1, m slots=1, n slots=1"},
		{Slurm, "n[1-2]\nm x", "f:2:3: x after the list"},
		{Format(99), "n", "no such format"},

		{Auto, "a:2\nb:3", "a slots=2, b slots=3"},
		{Auto, "a:2\nb slots=3", "a:2, b slots=3, warning f:1:1: a:2 is a host of that name"},
		{Auto, "a:2 binding=user:0,1", "a slots=2"},
		{Auto, "a:2 # slots=3", "a slots=2"},
		{Auto, "n[1-2]", "n1, n2"},
		{Auto, "a 2 all.q UNDEFINED", "a slots=2"},
		{Auto, "a 2 b 3", "a slots=2, b slots=3"},
		{Auto, "fd99::2\nb", "fd99::2, b"},
		{Auto, "", "f:1:1: no hosts"},
	} {
		list, warnings, err := Parse("f", []byte(c.text), c.format)
		got := joined(list)
		for _, w := range warnings {
			got += ", warning " + w.String()
		}
		ok := got == c.want
		if err != nil || len(warnings) > 0 {
			if err != nil {
				got = err.Error()
			}
			ok = strings.Contains(got, c.want)
		}
		if !ok {
			t.Errorf("%v %q:\n got %s\nwant %s", c.format, c.text, got, c.want)
		}
	}
}

// joined returns list, separated by commas.
func joined(list []Host) string {
	var s []string
	for _, h := range list {
		s = append(s, h.String())
	}
	return strings.Join(s, ", ")
}

func TestNodeLists(t *testing.T) {
	for _, c := range []struct{ list, want string }{
		{"n[01-04,7],m", "[n01 n02 n03 n04 n7 m]"},
		{"n[8-11]", "[n8 n9 n10 n11]"},
		{"n[098-101]", "[n098 n099 n100 n101]"},
		{"r[1-2]n[1-2]-ib", "[r1n1-ib r1n2-ib r2n1-ib r2n2-ib]"},
		{"b,a,b", "[b a b]"},
		{"[1-2]", "[1 2]"},
		{"n[4-1]", "node list:1:3: 4-1: a range that counts down; write 1-4"},
		{"n[1,4-2]", "node list:1:5: 4-2: a range that counts down"},
		{"", "node list:1:1: an empty name"},
		{"a,,b", "node list:1:3: an empty name"},
		{"a,", "node list:1:3: an empty name"},
		{"n[]", `node list:1:3: "": not a range`},
		{"n[a]", "node list:1:3: a: not a range"},
		{"n[1-2-3]", "not a range"},
		{"n[1-2", "node list:1:6: the list ends inside brackets"},
		{"n1]", "node list:1:3: a ] without a ["},
		{"n[1[2]]", "node list:1:4: a [ inside brackets"},
		{"a b", "node list:1:2:"},
		{"n[1-65537]", "more than 65536 hosts"},
		{"n[1-300][1-300]", "more than 65536 hosts"},
		{"m,n[1-65536]", "more than 65536 hosts"},
		{"n[0-9223372036854775807]", "more than 65536 hosts"},
		{"n[99999999999999999999]", "a number too large"},
		{strings.Repeat("n", 250) + "[1-2]aaaaa", "more than 255 bytes"},
		{"-n", "does not start with -"},
	} {
		names, err := Position{"node list", 1, 1}.expand(c.list)
		got := fmt.Sprint(names)
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%q:\n got %s\nwant %s", c.list, got, c.want)
		}
	}
	if names, err := (Position{"node list", 1, 1}).expand("n[1-65536]"); err != nil || len(names) != 65536 || names[65535] != "n65536" {
		t.Errorf("65536 hosts: %d, %v", len(names), err)
	}
}

func TestCounts(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"2(x3),1", "[2 2 2 1]"},
		{"4", "[4]"},
		{"", "counts:1:1: tasks without a number"},
		{"2(x0)", "counts:1:4: hosts 0: out of range"},
		{"2(x3", "counts:1:4: 3: no )"},
		{"1,2x3", "counts:1:3: tasks 2x3: not a number"},
		{"1(x65536),1", "counts:1:11: counts for more than 65536"},
	} {
		counts, err := Position{"counts", 1, 1}.expandCounts(c.text)
		got := fmt.Sprint(counts)
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%q: got %s, want %s", c.text, got, c.want)
		}
	}
}

func TestParseList(t *testing.T) {
	for _, c := range []struct{ list, want string }{
		{"a:2,b:2", "a slots=2, b slots=2"},
		{"a,a,b,a", "a slots=2, b slots=1, a slots=1"},
		{"u@a:3", "u@a slots=3"},
		{"a,,b", "--host:1:3: an empty name"},
		{"a,b:x", "--host:1:5: slots of b x: not a number"},
		{"a b", "--host:1:2:"},
	} {
		list, err := ParseList(c.list)
		got := joined(list)
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%q: got %s, want %s", c.list, got, c.want)
		}
	}
}

func TestFormatNames(t *testing.T) {
	for f := Auto; f <= Slurm; f++ {
		if got, err := ParseFormat(f.String()); got != f || err != nil {
			t.Errorf("ParseFormat(%v) is %v, %v", f, got, err)
		}
	}
	if _, err := ParseFormat("yaml"); err == nil || !strings.Contains(err.Error(), "openmpi, mpich") {
		t.Errorf("ParseFormat(yaml): %v", err)
	}
}

func TestFromEnv(t *testing.T) {
	files := map[string]string{"/pbs": "a\na\nb\n", "/sge": "a 2 q UNDEFINED\n"}
	read := func(name string) ([]byte, error) {
		if text, ok := files[name]; ok {
			return []byte(text), nil
		}
		return nil, errors.New("open " + name + ": no such file")
	}
	for _, c := range []struct{ env, want string }{
		{"", "none"},
		{"SLURM_JOB_ID=7 SLURM_JOB_NODELIST=n[1-2],m SLURM_TASKS_PER_NODE=2(x2),1",
			"slurm from Slurm job 7 (SLURM_JOB_NODELIST): n1 slots=2, n2 slots=2, m slots=1"},
		{"SLURM_NODELIST=n SLURM_JOB_CPUS_PER_NODE=4", "slurm from Slurm (SLURM_NODELIST): n slots=4"},
		{"SLURM_JOB_NODELIST=n", "slurm from Slurm (SLURM_JOB_NODELIST): n"},
		{"SLURM_JOB_NODELIST=n SLURM_NODELIST=m", "slurm from Slurm (SLURM_JOB_NODELIST): n"},
		{"SLURM_JOB_NODELIST=n[1-2] SLURM_TASKS_PER_NODE=2", "SLURM_TASKS_PER_NODE:1:1: 2 counts 1 hosts"},
		{"SLURM_JOB_NODELIST=n[2-1]", "SLURM_JOB_NODELIST:1:3: 2-1"},
		{"PBS_NODEFILE=/pbs PBS_JOBID=3.head", "pbs from PBS job 3.head (PBS_NODEFILE): a slots=2, b slots=1"},
		{"PBS_NODEFILE=/gone", "PBS_NODEFILE:1:1: open /gone"},
		{"PE_HOSTFILE=/sge", "sge from Grid Engine (PE_HOSTFILE): a slots=2"},
		{"LSB_MCPU_HOSTS=a_2_b_3", "lsf from LSF (LSB_MCPU_HOSTS): a slots=2, b slots=3"},
		{"LSB_MCPU_HOSTS=a_2_b", "LSB_MCPU_HOSTS:1:5: b without"},
		{"PBS_NODEFILE=/pbs SLURM_JOB_NODELIST=n LSB_MCPU_HOSTS=", "slurm from Slurm (SLURM_JOB_NODELIST): n; PBS_NODEFILE:1:1: passed over"},
	} {
		env := map[string]string{}
		for kv := range strings.FieldsSeq(c.env) {
			k, v, _ := strings.Cut(kv, "=")
			if k == "LSB_MCPU_HOSTS" {
				v = strings.ReplaceAll(v, "_", " ")
			}
			env[k] = v
		}
		a, ok, err := FromEnv(func(k string) (string, bool) { v, ok := env[k]; return v, ok }, read)
		got := "none"
		if ok {
			got = fmt.Sprintf("%v from %s: %s", a.System, a.Source, joined(a.Hosts))
		}
		for _, w := range a.Warnings {
			got += "; " + w.String()
		}
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, c.want) || err == nil && len(a.Warnings) == 0 && got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.env, got, c.want)
		}
	}
}
