package launcher

import (
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/internal/forecast"
)

// A program that makes no step, as one that prints a greeting, has no time, which the report says.
func TestForecastWithoutSteps(t *testing.T) {
	p := planning{forecastCommand: &forecastCommand{}}
	p.request.Machine = &forecast.Machine{}
	r := &forecast.Report{Size: 2, Ranks: []*forecast.Rank{{Rank: 0, Count: 2}}}
	err := p.predict(r, "")
	if notes := strings.Join(r.Notes, " "); err != nil || r.Time != nil || !strings.Contains(notes, "the program makes no step") {
		t.Errorf("%v, %+v", err, r)
	}
}
