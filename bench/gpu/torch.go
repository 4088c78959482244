package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
)

//go:embed torch.py
var script string

// torch returns what PyTorch takes, by name, or why there is nothing. python is an
// interpreter; "" for none.
func torch(ctx context.Context, python string, scale int) (theirs map[string]result, why string) {
	if python == "" {
		return nil, "it was not asked for"
	}
	cmd := exec.CommandContext(ctx, python, "-c", script, fmt.Sprint(scale))
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		last := strings.TrimSpace(said.String())
		return nil, strings.TrimSpace(err.Error() + ": " + last[strings.LastIndexByte(last, '\n')+1:])
	}
	theirs = map[string]result{}
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		var r result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil || r.Name == "" {
			return nil, fmt.Sprintf("%s printed %q", python, lines.Text())
		}
		theirs[r.Name] = r
	}
	return theirs, ""
}

// beside notes what PyTorch takes for the same.
func (r *result) beside(theirs map[string]result) {
	its, ok := theirs[r.Name]
	if !ok {
		r.Torch = "missing"
		return
	}
	r.TorchMS, r.TorchMiB = its.Millis, its.ExtraMiB
}
