//go:build linux

package control

import (
	"encoding/json"
	"slices"
	"testing"
	"time"
)

// What a rank reports is, where it was copied, what the rank says itself.
func TestReportsAreCopied(t *testing.T) {
	_, here := create(t, 2)
	_, there := create(t, 2)
	rank, copied := here[1], there[0]
	wait := Wait{Call: Call{Comm: 1, Seq: 9}, Since: time.Unix(5, 7), On: 0, Text: "Barrier", Site: "a.go:1", Attended: true}
	rank.BeginWait(1, wait)
	rank.Log(1, Call{Comm: 1, Seq: 9}, 80)
	rank.SetStep(1, 3)
	send := func() {
		t.Helper()
		text, err := json.Marshal(rank.Report(1, 3))
		if err != nil {
			t.Fatal(err)
		}
		var r Report
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatal(err)
		}
		copied.Copy(1, r)
	}
	check := func(saved time.Time) {
		t.Helper()
		step, _ := copied.Step(1)
		if w := copied.Waiting(1); !slices.Equal(w.Waits, []Wait{wait}) || w.Elsewhere || step != 3 || copied.Calls(1) != 1 ||
			copied.Bytes(1) != 80 || !copied.Saved(1).Equal(saved) {
			t.Errorf("copied: %+v, step %d, %d calls of %d bytes, saved at %v", w, step, copied.Calls(1), copied.Bytes(1), copied.Saved(1))
		}
	}
	send()
	check(time.Time{})
	rank.SetSaved(1)
	send()
	check(rank.Saved(1))

	done := make(chan struct{})
	go func() { // who copies the same again
		defer close(done)
		for range 2000 {
			rank.Beat(1)
			send()
		}
	}()
	for looks := 0; ; looks++ {
		select {
		case <-done:
			return
		default:
		}
		if w := copied.Waiting(1); len(w.Waits) != 1 {
			t.Errorf("look %d does not see that the rank waits: %+v", looks, w)
			<-done
			return
		}
	}
}
