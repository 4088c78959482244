package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/data/criteo"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/metrics"
)

// A summary is what -json prints.
type summary struct {
	Steps          int       `json:"steps"`
	LossFirst      float64   `json:"loss_first"`
	LossLast       float64   `json:"loss_last"`
	HeldOutLoss    float64   `json:"held_out_loss"`
	AUC            *float64  `json:"auc"`             // null where the held-out lines are all clicks, or none is
	LogisticAUC    *float64  `json:"logistic_auc"`    // of a logistic regression on the counts alone
	LogisticLoss   float64   `json:"logistic_loss"`   // its loss on the held-out lines
	MalformedLines int       `json:"malformed_lines"` // left out
	LinesPerSecond float64   `json:"lines_per_second"`
	Parameters     int       `json:"parameters"`
	Plan           []string  `json:"plan"` // how each table lies
	NP             int       `json:"np"`
	DP             int       `json:"dp"`
	TP             int       `json:"tp"`
	Losses         []float64 `json:"losses"`       // one a step
	StateSHA256    string    `json:"state_sha256"` // of weights and optimizer state, see checkpoint.SHA256
}

// report measures the model on the held-out lines and tells what came of the
// run. All ranks compute; rank 0 tells.
func report(ctx context.Context, world *comm.Comm, t *trainer, bad int, say func(string, ...any)) error {
	logits, err := t.logits(ctx)
	if err != nil {
		return err
	}
	var keys embedding.DynamicStats
	if t.model.keys != nil {
		keys = t.model.keys.Stats()
	}
	disks, err := t.disks(ctx)
	if err != nil {
		return err
	}
	sum, err := t.run.SHA256(ctx, world)
	if err != nil || world.Rank() != 0 {
		return err
	}
	plain := fitLogistic(t.learn.Counts, criteo.Dense, t.learn.Labels).logits(t.heldOut.Counts)
	labels := t.heldOut.Labels
	s := summary{Steps: len(t.run.Losses), LossFirst: t.run.Losses[0], LossLast: t.run.Losses[len(t.run.Losses)-1],
		HeldOutLoss: metrics.LogLoss(logits, labels), LogisticLoss: metrics.LogLoss(plain, labels),
		MalformedLines: bad, LinesPerSecond: t.run.UnitsPerSecond, NP: world.Size(), DP: t.o.dp, TP: t.o.tp, Losses: t.run.Losses,
		Plan: t.plan, StateSHA256: sum}
	for _, p := range t.model.dense() {
		s.Parameters += p.Numel()
	}
	if t.model.keys != nil {
		s.Parameters += t.model.keys.Weight().Numel()
		say("%v", keys)
	} else {
		for _, table := range t.model.tables.Tables() {
			s.Parameters += table.Weight().Numel()
		}
	}
	for _, line := range disks {
		say("%s", line)
	}
	if math.IsNaN(s.HeldOutLoss) || math.IsInf(s.HeldOutLoss, 0) {
		return fmt.Errorf("recsys: the loss on the held-out lines is %v; lower -lr or -table-lr", s.HeldOutLoss)
	}
	say("\n%-41s  AUC     loss", fmt.Sprintf("on %d held-out lines", len(labels)))
	if auc, ok := metrics.AUC(plain, labels); ok {
		s.LogisticAUC = &auc
	}
	if auc, ok := metrics.AUC(logits, labels); ok {
		s.AUC = &auc
	}
	if s.AUC == nil {
		say("  they are all clicks, or none is: there is no AUC; give more -rows")
	} else {
		say("  logistic regression on the counts alone  %.4f  %.4f", *s.LogisticAUC, s.LogisticLoss)
		say("  %-39s  %.4f  %.4f", fmt.Sprintf("model after %d steps", s.Steps), *s.AUC, s.HeldOutLoss)
	}
	say("trained on %.0f lines/s", s.LinesPerSecond)
	if t.o.json {
		return json.NewEncoder(os.Stdout).Encode(s)
	}
	return nil
}

// disks says of each table on disks what they were asked.
func (t *trainer) disks(ctx context.Context) (lines []string, err error) {
	if t.model.tables == nil {
		return nil, nil
	}
	err = dtensor.Try(ctx, t.mesh, func() {
		for i, table := range t.model.tables.Tables() {
			if _, stored := table.Weight().Stored(); stored {
				lines = append(lines, fmt.Sprintf("%s: %v", t.names[i], table.StoreStats()))
			}
		}
	})
	return lines, err
}
