package cuda

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/tensor/cuda/cudatest"
)

// TestFaultyKernels launches kernels with a mistake each, which the fake driver must
// find, and sound ones, in which it must find nothing.
func TestFaultyKernels(t *testing.T) {
	if os.Getenv("GORUN_TEST_GPU") == "1" {
		t.Skip("a real device does not find them; compute-sanitizer does")
	}
	const unordered = "nothing orders them"
	faults := map[string]string{
		"race_no_barrier":     unordered,
		"race_next_round":     unordered,
		"race_same_value":     unordered,
		"race_lanes":          unordered,
		"race_lanes_shuffled": unordered,
		"race_half_warps":     unordered,
		"race_global":         unordered,
		"race_blocks":         unordered,
		"race_blocks_barrier": unordered,
		"race_atomic":         unordered,
		"race_copy":           unordered,
		"race_copy_done":      unordered,
		"race_load":           unordered,
		"unwritten_shared":    "4 bytes of shared memory at faulty.cu:LINE, which nothing has written",
		"unwritten_block":     "4 bytes of shared memory at faulty.cu:LINE, which nothing has written",
		"unwritten_global":    "4 bytes of global memory at faulty.cu:LINE, which nothing has written",
		"outside_read":        "reads 4 bytes of global memory at faulty.cu:LINE, outside of what is allocated",
		"outside_write":       "writes 4 bytes of global memory at faulty.cu:LINE, outside of what is allocated",
		"outside_null":        "4 bytes of unknown memory at faulty.cu:LINE, which is none of the device's",
		"outside_shared":      "takes element 256 of an array that has none, at faulty.cu:LINE",
		"outside_copy":        "reads 16 bytes of global memory at faulty.cu:LINE, outside of what is allocated",
		"misaligned":          "whose address is no multiple of that",
		"misaligned_load":     "whose address is no multiple of that",
		"copy_undone":         "a thread has ended before its copies were done",
		"sync_some_ended":     "some threads ended while others wait at a barrier",
		"sync_apart":          "threads wait at different barriers",
		"sync_lane_ended":     "a mask names a lane that has ended",
		"sync_lane_elsewhere": "threads wait for each other",
		"sync_lane_unnamed":   "a lane that its mask does not name",
		"sync_not_itself":     "a mask does not name its own lane",
		"sync_lanes_apart":    "lanes of a warp wait for each other in different places",
	}
	text, err := os.ReadFile("cudatest/fake/faulty.cu")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	dev := openGPU(t, false)
	_, reset, err := open([]string{cudatest.Library(t)}, []string{"cuDevicePrimaryCtxReset_v2"})
	if err != nil {
		t.Fatal(err)
	}
	handle, err := dev.drv.device(0)
	if err != nil {
		t.Fatal(err)
	}
	const n = 2 * threads
	tested := 0
	for _, m := range regexp.MustCompile(`KERNEL\((\w+), int \*p, i64 n\)`).FindAllStringSubmatch(string(text), -1) {
		name := m[1]
		want, faulty := faults[name]
		if faulty {
			tested++
		} else if !strings.HasPrefix(name, "sound_") {
			t.Errorf("what is wrong with %s?", name)
		}
		for range 3 { // in another order each
			p, err := allocator{dev}.Alloc(4 * n)
			if err != nil {
				t.Fatal(err)
			}
			if name != "unwritten_global" {
				dev.clear(p, 4*n)
			}
			err = caught(func() {
				made, err := dev.compile("faulty.ptx", fmt.Appendf(nil, ".visible .entry %s(\n.param .u64 p,\n.param .u64 n\n)", name))
				if err != nil {
					t.Fatal(err)
				}
				m := &module{handle: made}
				m.once.Do(func() {})
				dev.modules.file[name] = m
				dev.kernel(name).ptr(p).i64(n).blocks(2)
				dev.Sync()
			})
			var failed *Error
			switch {
			case !faulty && err != nil:
				t.Errorf("%s: %v", name, err)
			case !faulty:
			case !errors.As(err, &failed):
				t.Errorf("%s: nothing found, want %q", name, want)
			default:
				said := failed.Text
				for _, at := range regexp.MustCompile(`faulty\.cu:(\d+)`).FindAllStringSubmatch(said, -1) {
					i := 0
					fmt.Sscan(at[1], &i)
					if !strings.Contains(within(lines, i), "KERNEL("+name+",") {
						t.Errorf("%s: %q names line %d, which is another kernel's", name, said, i)
					}
					said = strings.Replace(said, at[0], "faulty.cu:LINE", 1)
				}
				if !strings.Contains(said, want) || strings.HasPrefix(name, "race_") && strings.Count(said, "faulty.cu:LINE") != 2 {
					t.Errorf("%s: %q does not say %q, or not where", name, failed.Text, want)
				}
			}
			syscall(reset[0], handle) // or it would fail for good
		}
	}
	if tested != len(faults) {
		t.Errorf("%d faulty kernels tested, %d expected", tested, len(faults))
	}
}

// within returns the line that begins the kernel of line i, counted from 1.
func within(lines []string, i int) string {
	for i--; i > 0 && !strings.HasPrefix(lines[i], "KERNEL("); i-- {
	}
	return lines[i]
}
