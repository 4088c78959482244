package runtime

import (
	"context"
	"io"
	"os"
	"slices"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/term"
)

// Logger returns this rank's log: structured lines on standard error that carry
// the time, the rank, the host and, after SetStep, the step.
//
// They are JSON, or text for people if standard error, or gorun's, is a terminal;
// GORUN_LOG_FORMAT=json or console overrides. GORUN_LOG sets the least level that
// is written: trace, debug, info (the default), warn, error or disabled.
// The logger of a ctx that Main did not make writes nothing.
func Logger(ctx context.Context) *zerolog.Logger {
	if r := from(ctx); r != nil {
		return &r.log
	}
	nop := zerolog.Nop()
	return &nop
}

// timeForm is RFC 3339 with milliseconds.
const timeForm = "2006-01-02T15:04:05.000Z07:00"

// newLogger makes the log of r, written to w, as the environment asks.
func newLogger(w io.Writer, r *rank, env func(string) string) zerolog.Logger {
	level, err := zerolog.InfoLevel, error(nil)
	if name := env("GORUN_LOG"); name != "" {
		if level, err = zerolog.ParseLevel(name); err != nil {
			level = zerolog.InfoLevel
		}
	}
	format := env("GORUN_LOG_FORMAT")
	if console(w, format) {
		w = zerolog.ConsoleWriter{
			Out:           w,
			NoColor:       env("NO_COLOR") != "" || env("TERM") == "dumb",
			TimeFormat:    "15:04:05.000",
			PartsOrder:    []string{zerolog.TimestampFieldName, zerolog.LevelFieldName, "rank", zerolog.MessageFieldName},
			FieldsExclude: []string{"rank", "host"},
			FormatPartValueByName: func(v any, name string) string {
				if s, ok := v.(interface{ String() string }); ok && name == "rank" {
					return "rank " + s.String()
				}
				return ""
			},
		}
	}
	log := zerolog.New(w).Level(level).Hook(stamp{r})
	if err != nil {
		log.Warn().Msgf("GORUN_LOG=%s: not a level; give trace, debug, info, warn, error or disabled", env("GORUN_LOG"))
	}
	if !slices.Contains([]string{"", "console", "json"}, format) {
		log.Warn().Msgf("GORUN_LOG_FORMAT=%s: not a form; give console or json", format)
	}
	return log
}

// console reports whether log lines are for people's eyes.
func console(w io.Writer, format string) bool {
	if format != "" {
		return format == "console"
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// stamp adds to each line what is known of the rank at that moment.
type stamp struct{ rank *rank }

// Run is called by zerolog for each line.
func (s stamp) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str(zerolog.TimestampFieldName, time.Now().Format(timeForm))
	e.Int("rank", s.rank.job.Rank).Str("host", s.rank.host)
	if step := s.rank.step.Load(); step >= 0 {
		e.Int64("step", step)
	}
}
