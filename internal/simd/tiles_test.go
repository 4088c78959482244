package simd

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A processor without tiles does not ask for them; where the system refuses them, the level below is the best.
func TestTilesAreAskedFor(t *testing.T) {
	asked := 0
	allow := func(answer bool) func() bool {
		return func() bool { asked++; return answer }
	}
	for _, c := range []struct {
		has, allowed, slow bool
		want               Level
		asked              int
	}{
		{false, true, false, best, 0},
		{false, true, true, min(best, AVX512), 0},
		{true, false, false, best, 1},
		{true, false, true, min(best, AVX512), 1},
		{true, true, true, AMX, 1},
	} {
		asked = 0
		if got := fastestBF16(c.has, allow(c.allowed), c.slow); got != c.want || asked != c.asked {
			t.Errorf("%+v: %v, asked %d times", c, got, asked)
		}
	}
	if BestBF16() == AMX && !hasTiles() {
		t.Error("AMX on a processor that has it not")
	}
}

// GODEBUG takes an instruction set away, and so all that need it.
func TestInstructionSetsAreSwitchedOff(t *testing.T) {
	if os.Getenv("PRINT_LEVELS") != "" {
		os.Stdout.WriteString("levels " + Best().String() + ", " + BestBF16().String() + "\n")
		return
	}
	if best < AVX2 {
		t.Skip("an instruction set of amd64")
	}
	for off, most := range map[string]Level{
		"amxbf16": AVX512BF16, "amxtile": AVX512BF16, "avx512bf16": AVX512, "avx512f": AVX2, "avx2": Scalar,
	} {
		c := exec.Command(os.Args[0], "-test.run=^TestInstructionSetsAreSwitchedOff$")
		c.Env = append(os.Environ(), "PRINT_LEVELS=1", "GODEBUG=cpu."+off+"=off")
		out, err := c.CombinedOutput()
		products := min(BestBF16(), most)
		if products == AVX512BF16 && pairsSlow() {
			products = AVX512
		}
		want := "levels " + min(best, most).String() + ", " + products.String() + "\n"
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("without %s: %v, %s, want %s", off, err, out, want)
		}
	}
}
