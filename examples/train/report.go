package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/data/ngram"
	"github.com/gorun-spmd/gorun/metrics"
	"github.com/gorun-spmd/gorun/metrics/losscurve"
	"github.com/gorun-spmd/gorun/metrics/progress"
)

// A summary is what -json prints.
type summary struct {
	Steps              int       `json:"steps"`
	LossFirst          float64   `json:"loss_first"`
	LossLast           float64   `json:"loss_last"`
	HeldOutLoss        float64   `json:"held_out_loss"` // nats per token
	BitsPerByte        float64   `json:"bits_per_byte"`
	UnigramBitsPerByte float64   `json:"unigram_bits_per_byte"`
	BigramBitsPerByte  float64   `json:"bigram_bits_per_byte"`
	GzipBitsPerByte    float64   `json:"gzip_bits_per_byte"`
	NGramBitsPerByte   float64   `json:"ngram_bits_per_byte,omitempty"` // of what the network began with
	TokensPerSecond    float64   `json:"tokens_per_second"`
	Parameters         int       `json:"parameters"`
	NP                 int       `json:"np"`
	DP                 int       `json:"dp"`
	TP                 int       `json:"tp"`
	Losses             []float64 `json:"losses"`       // nats per token, one a step
	StateSHA256        string    `json:"state_sha256"` // of weights and optimizer state, see checkpoint.SHA256
}

// report measures the model on the held-out text and tells what came of the run.
// All ranks compute; rank 0 tells.
func report(ctx context.Context, world *comm.Comm, t *trainer, say func(string, ...any)) error {
	if len(t.run.Losses) == 0 {
		return errors.New("train: the time was over before the first step; give more -minutes, or -steps")
	}
	say("measuring on the held-out text …")
	nats, targets, err := t.heldOut(ctx)
	if err != nil {
		return err
	}
	if math.IsNaN(nats) || math.IsInf(nats, 0) {
		return fmt.Errorf("train: the loss on the held-out text is %v; lower -lr", nats)
	}
	text, err := t.write(ctx)
	if err != nil {
		return err
	}
	sum, err := t.run.SHA256(ctx, world)
	if err != nil {
		return err
	}
	if world.Rank() != 0 {
		return nil
	}
	d := t.text
	scores, err := ngram.Measure(d.Train, d.HeldOut, d.Tokenizer.VocabSize(), d.HeldOutText())
	if err != nil {
		return err
	}
	s := summary{
		Steps: len(t.run.Losses), LossFirst: t.run.Losses[0], LossLast: t.run.Losses[len(t.run.Losses)-1],
		HeldOutLoss: nats / float64(targets), BitsPerByte: metrics.BitsPerByte(nats, d.HeldOutBytes),
		UnigramBitsPerByte: scores.Unigram, BigramBitsPerByte: scores.Bigram, GzipBitsPerByte: scores.Gzip,
		TokensPerSecond: t.run.UnitsPerSecond, Parameters: t.model.count(), NP: world.Size(), DP: t.o.dp, TP: t.o.tp, Losses: t.run.Losses,
		StateSHA256: sum,
	}
	if t.model.counts != nil {
		s.NGramBitsPerByte = t.model.counts.BitsPerByte(d.HeldOut, d.HeldOutBytes)
	}
	say("\nbits per byte on %s of held-out text", size(d.HeldOutBytes))
	say("  unigram   %.3f", s.UnigramBitsPerByte)
	say("  gzip -9   %.3f", s.GzipBitsPerByte)
	say("  bigram    %.3f", s.BigramBitsPerByte)
	if s.NGramBitsPerByte > 0 {
		say("  %d-gram    %.3f   with which the network begins", t.model.counts.Order(), s.NGramBitsPerByte)
	}
	say("  model     %.3f   %+.0f %% against the unigram, after %d steps of %s tokens", s.BitsPerByte,
		100*(s.BitsPerByte/s.UnigramBitsPerByte-1), s.Steps, progress.Count(float64(t.run.PerStep)))
	say("what each would compress that text to: the less, the better it knows what comes next")
	if text != "" {
		say("\nhow the model goes on from %q:\n%s", t.o.prompt, text)
	}
	if t.o.plot != "" {
		if err := t.curve(s, targets).Save(t.o.plot); err != nil {
			return fmt.Errorf("train: -plot: %w", err)
		}
		say("\nloss curve: %s", t.o.plot)
	}
	if t.o.json {
		return json.NewEncoder(os.Stdout).Encode(s)
	}
	return nil
}

// curve is the loss curve with the levels of the simpler models.
func (t *trainer) curve(s summary, targets int) losscurve.Curve {
	level := func(bits float64) float64 { return metrics.Nats(bits, t.text.HeldOutBytes) / float64(targets) }
	return losscurve.Curve{
		Title:   fmt.Sprintf("%s parameters, np %d (dp %d, tp %d)", progress.Count(float64(s.Parameters)), s.NP, s.DP, s.TP),
		Train:   s.Losses,
		HeldOut: []losscurve.Point{{Step: s.Steps, Loss: s.HeldOutLoss}},
		Levels: []losscurve.Level{
			{Name: "unigram", Loss: level(s.UnigramBitsPerByte)},
			{Name: "gzip -9", Loss: level(s.GzipBitsPerByte)},
			{Name: "bigram", Loss: level(s.BigramBitsPerByte)},
		},
	}
}

// size writes a number of bytes.
func size(bytes int) string {
	if bytes < 10_000 {
		return fmt.Sprintf("%d bytes", bytes)
	}
	return fmt.Sprintf("%d kB", (bytes+500)/1000)
}
