package docs_test

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/internal/testenv"
)

const recipes = "recipes.md" // its blocks of Go are one program

// The recipes have the results of one rank, and the figures of their page.
func TestRecipes(t *testing.T) {
	testenv.DependsOn(t, "../nn", "../optim", "../comm/commtest")
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	var source string
	for _, b := range programs(t) {
		if strings.HasPrefix(b.place, recipes) {
			source = strings.TrimSuffix(program(b), emptyMain)
		}
	}
	dir := t.TempDir()
	page, overlay := filepath.Join(dir, "page.go"), filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(here, "_recipes", "page.go"): page,
		filepath.Join(here, "_recipes", "main.go"): filepath.Join(here, "testdata", "recipes.go"),
	}})
	if err == nil {
		err = errors.Join(os.WriteFile(page, []byte(source), 0o666), os.WriteFile(overlay, text, 0o666))
	}
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-overlay", overlay, "-o", filepath.Join(dir, "recipes"), "./_recipes")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(filepath.Join(dir, "recipes")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	rows := regexp.MustCompile(`(?m)^\| \[(.*?)\]\(#.*?\) \| (.*) \|$`).FindAllStringSubmatch(pages(t)[recipes], -1)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(rows) != len(lines) {
		t.Errorf("the page has %d rows, want %d", len(rows), len(lines))
	}
	for i, line := range lines {
		if got := strings.Split(line, " | "); i >= len(rows) || !sameRow(append(rows[i][1:2], strings.Split(rows[i][2], " | ")...), got) {
			t.Errorf("row %d is to be\n%s", i, line)
		}
	}
}

// sameRow reports whether a row of the page is what a run gave. Memory may differ by a twentieth, or 0.2 MB.
func sameRow(page, run []string) bool {
	if len(page) != 5 || len(run) != 5 || strings.Join(page[:3], "|") != strings.Join(run[:3], "|") {
		return false
	}
	for i := range 2 {
		a, errA := strconv.ParseFloat(page[3+i], 64)
		b, errB := strconv.ParseFloat(run[3+i], 64)
		if errA != nil || errB != nil || math.Abs(a-b) > max(0.2, b/20) {
			return false
		}
	}
	return true
}
