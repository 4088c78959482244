package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

//go:embed torch.py
var script string

// torch returns PyTorch's results for the kernels in names, by name, or why there are none.
// python is an interpreter; "" for none. A kernel that could not be measured is not in
// theirs, and standard error says why.
func torch(ctx context.Context, python string, scale int, names []string) (theirs map[string]result, why string) {
	if python == "" {
		return nil, "it was not asked for"
	}
	list, err := json.Marshal(names)
	if err != nil {
		return nil, err.Error()
	}
	cmd := exec.CommandContext(ctx, python, "-c", script, fmt.Sprint(scale), string(list))
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
	os.Stderr.Write(said.Bytes())
	return theirs, ""
}

// beside notes PyTorch's time for the same kernel.
func (r *result) beside(theirs map[string]result) {
	its, ok := theirs[r.Name]
	if !ok {
		r.Torch = "missing"
		return
	}
	r.TorchMS, r.TorchMiB, r.Speedup = its.Millis, its.ExtraMiB, its.Millis/r.Millis
}
