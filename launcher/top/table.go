//go:build linux

package top

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// topKeys explains the keys of top.
const topKeys = "sort by: r rank  c cpu  m memory  b bytes/s  w waiting    q quit"

// sortViews sorts views in the order that key stands for, and equal ones by rank.
func sortViews(views []rankView, key byte) {
	slices.SortStableFunc(views, func(a, b rankView) int {
		by := 0
		switch key {
		case 'c':
			by = cmp.Compare(b.cpu, a.cpu)
		case 'm':
			by = cmp.Compare(b.memory, a.memory)
		case 'b':
			by = cmp.Compare(b.rate, a.rate)
		case 'w':
			by = cmp.Compare(b.waited, a.waited)
		}
		return cmp.Or(by, cmp.Compare(a.rank, b.rank))
	})
}

// topTable returns a header and a line for each rank.
func topTable(views []rankView) []string {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RANK\tPID\tSTATE\tCPU\tWAITED\tMEMORY\tSTEP\tCALLS\tBYTES\tRATE\tIN\tFOR\tAT")
	for _, v := range views {
		pid, cpu, idle, memory, step, waited := "", "", "", "", "", ""
		if v.pid != 0 {
			pid, cpu, memory = strconv.Itoa(v.pid), fmt.Sprintf("%.0f%%", 100*v.cpu), size(v.memory)
		}
		if v.pid != 0 && v.idle >= 0 {
			idle = fmt.Sprintf("%.0f%%", 100*v.idle)
		}
		if v.step >= 0 {
			step = strconv.Itoa(v.step)
		}
		if v.call != "" {
			waited = v.waited.Round(100 * time.Millisecond).String()
		}
		bytes, rate := "", ""
		if v.bytes > 0 {
			bytes, rate = size(v.bytes), size(int(v.rate))+"/s"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n",
			v.rank, pid, v.state, cpu, idle, memory, step, v.calls, bytes, rate, v.call, waited, v.at)
	}
	_ = w.Flush()
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}

// size returns a number of bytes with a unit: 512 B, 1.5 KiB, 20 MiB.
func size(bytes int) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	x, i := float64(bytes), 0
	for x >= 999.5 && i < len(units)-1 {
		x /= 1024
		i++
	}
	if i > 0 && x < 9.95 {
		return fmt.Sprintf("%.1f %s", x, units[i])
	}
	return fmt.Sprintf("%.0f %s", x, units[i])
}
