package report

import (
	"fmt"
	"strings"

	"github.com/gorun-spmd/gorun/launcher/phrase"
)

// Summary returns the report in at most five lines of text.
func (r *Report) Summary() []string {
	var all Rank
	for _, one := range r.Ranks {
		all.Seconds += one.Seconds
		all.Compute += one.Compute
		all.Communicate += one.Communicate
		all.Wait += one.Wait
		all.Input += one.Input
	}
	if all.Seconds <= 0 {
		return nil
	}
	share := func(x float64) string { return fmt.Sprintf("%.0f%%", 100*x/all.Seconds) }
	lines := []string{fmt.Sprintf("time: %s, of which the ranks computed %s, waited for each other %s, communicated %s, took input %s",
		phrase.Seconds(r.To-r.From), share(all.Compute), share(all.Wait), share(all.Communicate), share(all.Input))}
	lines = append(lines, "slowest: "+r.Slowest.String())
	if len(r.Causes) > 0 {
		c := r.Causes[0]
		what := c.Call
		if c.Cause != "" {
			what += " for " + c.Cause
		}
		lines = append(lines, fmt.Sprintf("longest in calls: %s at %s, %d of them, %s, %s waiting, a rank", what, c.Site, c.Calls,
			size(c.Bytes), phrase.Seconds((c.Wait)/float64(len(r.Ranks)))))
	}
	for _, o := range r.Operators {
		if o.Kind != "span" {
			lines = append(lines, fmt.Sprintf("longest operator: %s (%s) at %s, %s a rank", o.Name, o.Kind, o.Site,
				phrase.Seconds(o.Seconds/float64(len(r.Ranks)))))
			break
		}
	}
	most, at := 0.0, 0
	for _, one := range r.Ranks {
		if one.Memory > most {
			most, at = one.Memory, one.Rank
		}
	}
	if most > 0 {
		lines = append(lines, fmt.Sprintf("memory: %s at most, on rank %d", size(most), at))
	}
	for i := range lines { // the program may have put control characters into names
		lines[i] = strings.Map(func(c rune) rune {
			if c < ' ' || c == 0x7f {
				return '?'
			}
			return c
		}, lines[i])
	}
	return lines
}

// String returns a sentence about the slowest rank.
func (s *Slowest) String() string {
	if s == nil {
		return "no rank was much slower than the others"
	}
	text := fmt.Sprintf("rank %d: the others waited %s for it, %.0f%% of all waiting", s.Rank, phrase.Seconds(s.Seconds), 100*s.Share)
	if s.Ratio > 0 {
		text += fmt.Sprintf("; it computed and took input %.2g times as long as the median of the others", s.Ratio)
	}
	return text
}

// size returns a number of bytes with a unit.
func size(n float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	i := 0
	for n >= 999.5 && i < len(units)-1 {
		n /= 1024
		i++
	}
	return fmt.Sprintf("%.3g %s", n, units[i])
}
