package progress

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal opens a pseudo-terminal with so many columns: what is written to tty
// is read from screen.
func terminal(t *testing.T, columns int) (screen, tty *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { screen.Close() })
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { tty.Close() })
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: uint16(columns)}); err != nil {
		t.Fatal(err)
	}
	return screen, tty
}

func TestNewOnATerminal(t *testing.T) {
	for _, columns := range []int{0, 60, 90} {
		output, tty := terminal(t, columns)
		m := New(tty, Options{Steps: 4})
		m.Update(Status{Step: 2, Loss: 1.5, Done: 10})
		data := make([]byte, 1000)
		n, err := output.Read(data)
		if err != nil {
			t.Fatal(err)
		}
		got := screen(string(data[:n]))[0]
		wide := columns
		if columns == 0 { // a terminal that does not know
			wide = 80
		}
		if !strings.Contains(got, "step 2/4  loss 1.5000") || len(got) >= wide {
			t.Errorf("%d columns: %q", columns, got)
		}
		if columns != 60 && !strings.HasPrefix(got, "[=") {
			t.Errorf("%d columns: %q has no bar", columns, got)
		}
	}
}
