package train

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// Usage describes a command line: text, then the flags.
func Usage(text string, f *flag.FlagSet) string {
	var b strings.Builder
	b.WriteString(text)
	f.SetOutput(&b)
	f.PrintDefaults()
	return b.String()
}

// Parse reads the command line of the program into f, the same on all ranks. Asked for help it
// prints the flags on rank 0 and returns flag.ErrHelp, with which runtime.Main ends the job well.
func Parse(world *comm.Comm, f *flag.FlagSet) error {
	f.SetOutput(io.Discard) // each rank would say the same
	err := f.Parse(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp) && world.Rank() == 0:
		fmt.Print(Usage(fmt.Sprintf("usage: gorun -np N %s [flags]\n\n", f.Name()), f))
	case err != nil && !errors.Is(err, flag.ErrHelp):
		return fmt.Errorf("%s: %w; -h lists the flags", f.Name(), err)
	}
	return err
}

// Positive checks that the flags of these names, whole or real numbers, are above 0.
func Positive(f *flag.FlagSet, names ...string) error {
	for _, name := range names {
		switch v := f.Lookup(name).Value.(flag.Getter).Get().(type) {
		case int:
			if v < 1 {
				return fmt.Errorf("-%s %d: give at least 1", name, v)
			}
		case float64:
			if !(v > 0) {
				return fmt.Errorf("-%s %v: give a positive number", name, v)
			}
		}
	}
	return nil
}

// Mesh completes the sizes -dp and -tp of a mesh for size ranks: one that is 0 is
// what the other leaves over, -tp all of it if both are.
func Mesh(dp, tp, size int) (int, int, error) {
	if dp < 0 || tp < 0 {
		return 0, 0, fmt.Errorf("-dp %d -tp %d: give at least 1", dp, tp)
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"dp", dp}, {"tp", tp}} {
		if f.value > 0 && dp*tp == 0 && size%f.value != 0 {
			return 0, 0, fmt.Errorf("-%s %d does not divide the %s that there are; give %s",
				f.name, f.value, ints.Counted(size, "rank"), divisors(size))
		}
	}
	switch {
	case tp == 0 && dp == 0:
		dp, tp = 1, size
	case tp == 0:
		tp = size / dp
	case dp == 0:
		dp = size / tp
	}
	if dp*tp != size {
		return 0, 0, fmt.Errorf("-dp %d -tp %d do not make %s; give one of them alone, as %s", dp, tp, ints.Counted(size, "rank"), divisors(size))
	}
	return dp, tp, nil
}

// divisors is "1, 2 or 4".
func divisors(n int) string {
	list := "1"
	for d := 2; d < n; d++ {
		if n%d == 0 {
			list += fmt.Sprintf(", %d", d)
		}
	}
	if n > 1 {
		list += fmt.Sprintf(" or %d", n)
	}
	return list
}

// NewMesh returns the mesh (dp, tp) of all ranks of world, of sizes that Mesh completes:
// NewMesh(world, 0, 0) divides models alone, NewMesh(world, world.Size(), 0) batches alone. It
// is collective over world.
func NewMesh(world *comm.Comm, dp, tp int) (*dtensor.Mesh, error) {
	dp, tp, err := Mesh(dp, tp, world.Size())
	if err != nil {
		return nil, err
	}
	return dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: dp}, dtensor.Axis{Name: "tp", Size: tp})
}
