// Package suite reads conformance cases and runs them.
//
// A case is one line of a .jsonl file: an operator, a mesh, inputs with a
// layout each, arguments, and the answer that the unsharded operator gives.
// Run builds the inputs on the mesh, calls the operator through the public
// interface, brings everything to Replicate and compares it on every rank.
package suite

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/loss"
)

// A Case is one line of a case file.
type Case struct {
	Name   string            `json:"name"`
	Op     string            `json:"op"`
	Mesh   Mesh              `json:"mesh"`
	Inputs map[string]*Array `json:"inputs"`
	Args   Args              `json:"args"`

	// GradOutput is the gradient of the output, nil where no gradient is computed;
	// WantGrad are the inputs whose gradients are compared.
	GradOutput *Array   `json:"grad_output"`
	WantGrad   []string `json:"want_grad"`

	Expect Expect `json:"expect"`
	Tol    Tol    `json:"tol"`
}

// A Mesh is the grid of ranks that a case runs on. Position i, counted in
// row-major order, is held by rank Ranks[i] of the world; nil means rank i.
type Mesh struct {
	Shape []int    `json:"shape"`
	Names []string `json:"names"`
	Ranks []int    `json:"ranks"`
}

// Size is the number of ranks.
func (m Mesh) Size() int { return ints.Product(m.Shape) }

// An Array is a global tensor in row-major order. Integers are exact up to 2⁵³.
type Array struct {
	DType      string   `json:"dtype"`
	Shape      []int    `json:"shape"`
	Data       numbers  `json:"data"`
	Placements []string `json:"placements"`
}

// numbers reads a list of numbers, true and false as 1 and 0, and Python's
// names for what JSON cannot say, once quote has put them in quotes.
type numbers []float64

func (n *numbers) UnmarshalJSON(b []byte) error {
	list := strings.TrimSpace(string(b))
	list, open := strings.CutPrefix(list, "[")
	list, closed := strings.CutSuffix(list, "]")
	if !open || !closed {
		return errors.New("data is not a list of numbers")
	}
	*n = numbers{}
	if strings.TrimSpace(list) == "" {
		return nil
	}
	for word := range strings.SplitSeq(list, ",") {
		word = strings.Trim(strings.TrimSpace(word), `"`)
		switch word {
		case "true":
			word = "1"
		case "false":
			word = "0"
		}
		v, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return fmt.Errorf("data: %q is not a number", word)
		}
		*n = append(*n, v)
	}
	return nil
}

// notJSON are the numbers that Python writes and JSON does not know.
var notJSON = regexp.MustCompile(`([\[,:] *)(-?Infinity|NaN)\b`)

// quote puts them in quotes.
func quote(line []byte) []byte {
	return notJSON.ReplaceAll(line, []byte(`$1"$2"`))
}

// Args are the arguments of the operators, by their PyTorch names.
type Args struct {
	Dim             intOrList `json:"dim"`
	Keepdim         bool      `json:"keepdim"`
	K               int       `json:"k"`
	Shape           intOrList `json:"shape"`
	Dim0            int       `json:"dim0"`
	Dim1            int       `json:"dim1"`
	Start           int       `json:"start"`
	Length          int       `json:"length"`
	NormalizedShape intOrList `json:"normalized_shape"`
	Eps             *float64  `json:"eps"`
	IsCausal        bool      `json:"is_causal"`
	Diagonal        int       `json:"diagonal"`
	Shift           int       `json:"shift"`
	Descending      bool      `json:"descending"`
	Placements      []string  `json:"placements"`

	Reduction      string  `json:"reduction"`
	LogTarget      bool    `json:"log_target"`
	Delta          float64 `json:"delta"`
	Margin         float64 `json:"margin"`
	LogInput       bool    `json:"log_input"`
	Full           bool    `json:"full"`
	P              int     `json:"p"`
	Blank          int     `json:"blank"`
	ZeroInfinity   bool    `json:"zero_infinity"`
	Temperature    float64 `json:"temperature"`
	Symmetric      bool    `json:"symmetric"`
	DotProduct     bool    `json:"dot_product"`
	IgnoreIndex    *int64  `json:"ignore_index"`
	LabelSmoothing float64 `json:"label_smoothing"`

	PaddingIdx      *int    `json:"padding_idx"`
	MaxNorm         *number `json:"max_norm"`
	NormType        *number `json:"norm_type"`
	ScaleGradByFreq bool    `json:"scale_grad_by_freq"`
	Mode            string  `json:"mode"`

	// What parse makes of the words, and what it does not understand: the operator
	// refuses that, as a case may mean it to.
	placements []layout.Placement
	reduction  loss.Reduction
	mode       embedding.Mode
	unknown    error
}

// number reads what numbers reads one of: Infinity too.
type number float64

func (n *number) UnmarshalJSON(b []byte) error {
	v, err := strconv.ParseFloat(strings.Trim(string(b), `"`), 64)
	*n = number(v)
	return err
}

// intOrList reads a number as a list of one, and null as none.
type intOrList []int

func (l *intOrList) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' || string(b) == "null" {
		return json.Unmarshal(b, (*[]int)(l))
	}
	var one int
	if err := json.Unmarshal(b, &one); err != nil {
		return err
	}
	*l = intOrList{one}
	return nil
}

// Expect is what must come out.
type Expect struct {
	Output      *Array            `json:"output"`
	Indices     *Array            `json:"indices"`      // topk
	Local       []*Array          `json:"local"`        // redistribute: by world rank
	Grads       map[string]*Array `json:"grads"`        // global gradients by input
	InputsAfter map[string]*Array `json:"inputs_after"` // inputs changed in place
	Error       string            `json:"error"`        // the call must fail with a text that holds this
}

// Tol bounds a difference: |got - want| <= Atol + Rtol·|want|.
type Tol struct {
	Rtol float64 `json:"rtol"`
	Atol float64 `json:"atol"`
}

// Load reads the cases of path, a .jsonl file or a folder of them, in the order of names.
func Load(path string) ([]*Case, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	files := []string{path}
	if info.IsDir() {
		if files, err = filepath.Glob(filepath.Join(path, "*.jsonl")); err != nil {
			return nil, err
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("conformance: %s holds no .jsonl file", path)
		}
		slices.Sort(files)
	}
	var cases []*Case
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		more, err := read(f, name)
		f.Close()
		if err != nil {
			return nil, err
		}
		cases = append(cases, more...)
	}
	return cases, nil
}

func read(r io.Reader, name string) ([]*Case, error) {
	var cases []*Case
	in := bufio.NewReader(r)
	for line := 1; ; line++ {
		text, err := in.ReadString('\n')
		if strings.TrimSpace(text) != "" {
			c := new(Case)
			if err := json.Unmarshal(quote([]byte(text)), c); err != nil {
				return nil, fmt.Errorf("conformance: %s:%d: %w", name, line, err)
			}
			if err := c.validate(); err != nil {
				return nil, fmt.Errorf("conformance: %s:%d: %w", name, line, err)
			}
			cases = append(cases, c)
		}
		if err == io.EOF {
			return cases, nil
		}
		if err != nil {
			return nil, fmt.Errorf("conformance: %s:%d: %w", name, line, err)
		}
	}
}

// validate refuses a case whose parts do not fit together, so that Run can
// trust them.
func (c *Case) validate() error {
	if len(c.Mesh.Shape) == 0 {
		return fmt.Errorf("%s: the mesh has no shape", c.Name)
	}
	if n := len(c.Mesh.Ranks); n != 0 && n != c.Mesh.Size() {
		return fmt.Errorf("%s: the mesh has %d positions and %d ranks", c.Name, c.Mesh.Size(), n)
	}
	for name, a := range c.Inputs {
		if a == nil { // as if it were absent
			delete(c.Inputs, name)
			continue
		}
		if len(a.Placements) != len(c.Mesh.Shape) {
			return fmt.Errorf("%s: input %s has %d placements on a mesh of %d axes", c.Name, name, len(a.Placements), len(c.Mesh.Shape))
		}
		if n := ints.Product(a.Shape); n != len(a.Data) {
			return fmt.Errorf("%s: input %s of shape %v has %d elements", c.Name, name, a.Shape, len(a.Data))
		}
	}
	for _, name := range c.WantGrad {
		if c.Inputs[name] == nil || c.Expect.Grads[name] == nil || c.GradOutput == nil {
			return fmt.Errorf("%s: the gradient of %s is wanted but not described", c.Name, name)
		}
	}
	c.Args.unknown = c.Args.parse()
	if dim, ok := defaultDims[c.Op]; ok && len(c.Args.Dim) == 0 {
		c.Args.Dim = intOrList{dim}
	}
	if needsDim[c.Op] && len(c.Args.Dim) != 1 {
		return fmt.Errorf("%s: %s wants one dim, not %v", c.Name, c.Op, c.Args.Dim)
	}
	if c.Expect.Output == nil && c.Expect.Error == "" {
		return fmt.Errorf("%s: nothing is expected", c.Name)
	}
	return nil
}

// needsDim are the operators whose dim is one number.
var needsDim = map[string]bool{"softmax": true, "log_softmax": true, "topk": true,
	"narrow": true, "cat": true, "gather": true, "index_select": true, "argmin": true, "sort": true, "roll": true}

// defaultDims are the dims that PyTorch takes where there is none.
var defaultDims = map[string]int{"cat": 0, "topk": -1}

// batchMean is a reduction that kl_div alone has.
const batchMean = "batchmean"

// parse turns words into what they stand for.
func (a *Args) parse() (err error) {
	ok := true
	if a.placements, err = parsePlacements(a.Placements); err != nil {
		return err
	}
	if a.Reduction != "" && a.Reduction != batchMean {
		if a.reduction, ok = loss.ParseReduction(a.Reduction); !ok {
			return fmt.Errorf("unknown reduction %q", a.Reduction)
		}
	}
	if a.Mode != "" {
		if a.mode, ok = embedding.ParseMode(a.Mode); !ok {
			return fmt.Errorf("unknown mode %q", a.Mode)
		}
	}
	return nil
}

func parsePlacements(names []string) ([]layout.Placement, error) {
	placements := make([]layout.Placement, len(names))
	for i, name := range names {
		p, err := layout.Parse(name)
		if err != nil {
			return nil, err
		}
		placements[i] = p
	}
	return placements, nil
}

// Resize returns the case on a 1-D mesh of n ranks, or ok false where it has
// more axes. What is expected of each rank's local tensor does not carry over.
func (c *Case) Resize(n int) (resized *Case, ok bool) {
	if len(c.Mesh.Shape) != 1 {
		return nil, false
	}
	r := *c
	r.Name = fmt.Sprintf("%s@%d", c.Name, n)
	r.Mesh = Mesh{Shape: []int{n}, Names: c.Mesh.Names}
	r.Expect.Local = nil
	return &r, true
}
