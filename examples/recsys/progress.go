package main

import (
	"fmt"
	"time"
)

// A progress tells how far a run is, in a line now and then.
type progress struct {
	say   func(string, ...any)
	steps int
	lines int // of a step
	start time.Time
	told  time.Time
	first time.Time // when the first step was done, in which caches and pools fill
}

// nowAndThen is how often progress is told.
const nowAndThen = 2 * time.Second

func newProgress(steps, lines int, say func(string, ...any)) *progress {
	now := time.Now()
	return &progress{say: say, steps: steps, lines: lines, start: now, told: now}
}

// update tells of the steps that are done, if it is time.
func (p *progress) update(done int, loss float64) {
	now := time.Now()
	if done == 1 {
		p.first = now
	}
	if now.Sub(p.told) < nowAndThen && done < p.steps {
		return
	}
	p.told = now
	left := now.Sub(p.start) / time.Duration(done) * time.Duration(p.steps-done)
	p.say("step %d/%d  loss %.4f  %s  %v left", done, p.steps, loss, perSecond(p.rate(done)), left.Round(time.Second))
}

// rate returns the lines per second up to a step, the first left out if there are more.
func (p *progress) rate(done int) float64 {
	if done < 2 {
		return float64(p.lines*done) / time.Since(p.start).Seconds()
	}
	return float64(p.lines*(done-1)) / time.Since(p.first).Seconds()
}

func perSecond(rate float64) string { return fmt.Sprintf("%.1fk lines/s", rate/1000) }
