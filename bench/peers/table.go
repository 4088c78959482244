//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// A table collects the times of all rounds. The zero table is empty.
type table struct {
	cases    []string // in the order of our own program
	programs []string
	cells    map[[2]string]*cell // by case and program
}

// A cell is the times of one program for one case.
type cell struct {
	rounds      map[int]float64 // ns by round
	unsupported string
}

// add adds the lines of one run. If several have one name, the fastest counts.
func (t *table) add(round int, program string, lines []line) {
	if t.cells == nil {
		t.cells = map[[2]string]*cell{}
	}
	for _, l := range lines {
		who := program
		if l.Who != "" {
			who += ", " + l.Who
		}
		if !slices.Contains(t.programs, who) {
			t.programs = append(t.programs, who)
		}
		if program == ours && !slices.Contains(t.cases, l.key()) {
			t.cases = append(t.cases, l.key())
		}
		id := [2]string{l.key(), who}
		c := t.cells[id]
		if c == nil {
			c = &cell{rounds: map[int]float64{}}
			t.cells[id] = c
		}
		c.unsupported = l.Unsupported
		if old, ok := c.rounds[round]; l.NS > 0 && (!ok || l.NS < old) {
			c.rounds[round] = l.NS
		}
	}
}

// A figure is one entry of the finished table.
type figure struct {
	Case    string  `json:"name"`
	Program string  `json:"program"`
	NS      float64 `json:"ns,omitempty"`
	Ratio   float64 `json:"ratio,omitempty"` // the program's time by ours
	Rounds  int     `json:"rounds,omitempty"`
	Missing string  `json:"unsupported,omitempty"`
}

// figure computes an entry; ok is false if the program does not measure the case.
func (t *table) figure(name, program string) (f figure, ok bool) {
	c := t.cells[[2]string{name, program}]
	if c == nil {
		return figure{}, false
	}
	f = figure{Case: name, Program: program, Rounds: len(c.rounds), Missing: c.unsupported}
	var times, ratios []float64
	our := t.cells[[2]string{name, ours}]
	for round, ns := range c.rounds {
		times = append(times, ns)
		if base, ok := our.rounds[round]; ok {
			ratios = append(ratios, ns/base)
		}
	}
	if len(times) > 0 {
		f.NS = median(times)
	}
	if program != ours && len(ratios) > 0 {
		f.Ratio = median(ratios)
	}
	return f, true
}

// writeJSON writes a line for each entry.
func (t *table) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	for _, name := range t.cases {
		for _, p := range t.programs {
			if f, ok := t.figure(name, p); ok {
				if err := e.Encode(f); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// write writes the table for people.
func (t *table) write(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tw, "µs (ratio to %s)\t%s\t\n", ours, strings.Join(t.programs, "\t"))
	for _, name := range t.cases {
		fmt.Fprint(tw, name)
		for _, p := range t.programs {
			f, ok := t.figure(name, p)
			switch {
			case !ok:
				fmt.Fprint(tw, "\t")
			case f.NS == 0:
				fmt.Fprint(tw, "\tunsupported")
			case p == ours:
				fmt.Fprintf(tw, "\t%.2f", f.NS/1e3)
			default:
				fmt.Fprintf(tw, "\t%.2f (%.2f)", f.NS/1e3, f.Ratio)
			}
		}
		fmt.Fprint(tw, "\t\n")
	}
	return tw.Flush()
}

// median returns the middle number of v, or the mean of the middle two.
func median(v []float64) float64 {
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
