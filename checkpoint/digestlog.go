package checkpoint

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/gorun-spmd/gorun/checkpoint/safetensors"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// digestFormat begins the first line of a file of digests.
const digestFormat = "gorun digest"

// maxDigestLine is the size above which a line of such a file is refused.
const maxDigestLine = 1 << 30

// A DigestLog writes a file with the Digests of a run, a line of JSON for each step, which
// `gorun diff` compares with another run's. `gorun --digest FILE` has package train write one.
type DigestLog struct {
	world *comm.Comm
	file  *os.File // on the first rank, else nil

	operators *dtensor.OperatorDigests // of Operators; nil: none
}

// A digestHeader is the first line of a file of digests.
type digestHeader struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Ranks   int    `json:"ranks"`
}

// A digestLine is a step of a file of digests.
type digestLine struct {
	Step    int           `json:"step"`
	Loss    string        `json:"loss"`    // a number, which may be NaN; "" in a step that a fault ended
	Tensors []digestEntry `json:"tensors"` // none in such a step
	Fault   *Fault        `json:"fault,omitempty"`

	Operators []operatorEntry `json:"operators,omitempty"` // of the step, if they were listed
}

// A Fault is what a file of digests says of the step in which a job found that what a rank holds or computes is wrong: a
// *ReplicaError, a *ChangedError or a *dtensor.ProductError.
type Fault struct {
	Tensor  string `json:"tensor"`            // of a product, an operand that has a name
	Product string `json:"product,omitempty"` // the operator, and its line, if its result is wrong
	Index   []int  `json:"index,omitempty"`   // of the element, if it is known, of Tensor or of the product
	Ranks   []int  `json:"ranks"`             // on which it is wrong; of replicas of which none is more frequent, all but the first
	Text    string `json:"text"`              // the error
}

// faultOf returns what err says of a fault; nil if it is about none.
func faultOf(err error) *Fault {
	if e, ok := errors.AsType[*ReplicaError](err); ok {
		common, _ := e.common()
		f := &Fault{Tensor: e.Name, Index: e.Index, Text: e.Error()}
		for i, r := range e.Ranks {
			if e.Bits[i] != common {
				f.Ranks = append(f.Ranks, r)
			}
		}
		return f
	}
	if e, ok := errors.AsType[*ChangedError](err); ok {
		return &Fault{Tensor: e.Name, Index: e.Index, Ranks: []int{e.Rank}, Text: e.Error()}
	}
	if e, ok := errors.AsType[*dtensor.ProductError](err); ok {
		return &Fault{Tensor: e.Tensor, Product: e.Product(), Index: e.Index, Ranks: []int{e.Rank}, Text: e.Error()}
	}
	return nil
}

// A digestEntry is a Digest: 16 hex digits for each range.
type digestEntry struct {
	Name   string `json:"name"`
	DType  string `json:"dtype"`
	Shape  []int  `json:"shape"`
	Ranges string `json:"ranges"`
}

// OpenDigestLog begins the file at path, or goes on at its end if the job was restarted or
// resumed: of a step that is there twice the later line counts. It is collective over world,
// whose first rank writes, and its error is the same on every rank. In a program that runs for gorun plan, which has no numbers,
// it leaves the file as it is.
func OpenDigestLog(ctx context.Context, world *comm.Comm, path string, goOn bool) (_ *DigestLog, err error) {
	defer fault.Locate(&err)
	l := &DigestLog{world: world}
	if world.Rank() == 0 && !isPlanned(world) {
		l.file, err = openDigests(path, goOn, world.Size())
	}
	if err := agree(ctx, world, err); err != nil {
		return nil, fmt.Errorf("checkpoint: OpenDigestLog: %w", err)
	}
	return l, nil
}

func openDigests(path string, goOn bool, ranks int) (*os.File, error) {
	mode := os.O_WRONLY | os.O_CREATE | os.O_APPEND
	if !goOn {
		mode |= os.O_TRUNC
	}
	f, err := os.OpenFile(path, mode, 0o666)
	if err != nil {
		return nil, wantFolder(err, path)
	}
	info, err := f.Stat()
	if err == nil && info.Size() == 0 {
		err = json.NewEncoder(f).Encode(digestHeader{digestFormat, 1, ranks})
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Write writes the digests of a step: of its loss and of the tensors of state. It is collective.
// A *ReplicaError is the error of replicas that differ, and the same on every rank, as one of
// the file is; the file names it, beside the digests of the first copies.
func (l *DigestLog) Write(ctx context.Context, step int, loss float64, state *State) error {
	list, wrong := digests(ctx, l.world, state, 1)
	fault := faultOf(wrong)
	if wrong != nil && fault == nil {
		return fmt.Errorf("checkpoint: DigestLog: step %d: %w", step, wrong)
	}
	operators, err := l.operatorEntries(ctx)
	if err != nil {
		return fmt.Errorf("checkpoint: DigestLog: step %d: %w", step, err)
	}
	line := digestLine{Step: step, Loss: strconv.FormatFloat(loss, 'g', -1, 64), Tensors: make([]digestEntry, len(list)), Fault: fault,
		Operators: operators}
	for i, d := range list {
		line.Tensors[i] = digestEntry{d.Name, safetensors.Name(d.DType), d.Shape, d.text()}
	}
	err = l.write(ctx, &line)
	if err = cmp.Or(wrong, err); err != nil {
		return fmt.Errorf("checkpoint: DigestLog: step %d: %w", step, err)
	}
	return nil
}

// WriteFault writes that a step ended by err, if a Fault tells of such an error; of another it writes nothing. It is collective,
// and its error the same on every rank.
func (l *DigestLog) WriteFault(ctx context.Context, step int, err error) error {
	fault := faultOf(err)
	if fault == nil {
		return nil
	}
	if err := l.write(ctx, &digestLine{Step: step, Fault: fault}); err != nil {
		return fmt.Errorf("checkpoint: DigestLog: step %d: %w", step, err)
	}
	return nil
}

// write writes a line on the first rank.
func (l *DigestLog) write(ctx context.Context, line *digestLine) (err error) {
	if l.file != nil {
		err = json.NewEncoder(l.file).Encode(line)
	}
	return agree(ctx, l.world, err)
}

// Close closes the file, and ends a list of operators that no Write has ended.
func (l *DigestLog) Close() error {
	if l.operators != nil {
		l.operators.Take()
		l.operators = nil
	}
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// text writes the ranges in hex.
func (d *Digest) text() string {
	b := make([]byte, 0, 16*len(d.Ranges))
	for _, r := range d.Ranges {
		b = fmt.Appendf(b, "%016x", r)
	}
	return string(b)
}

// digest checks and returns what an entry says.
func (e *digestEntry) digest() (Digest, error) {
	d := Digest{Name: e.Name, Shape: e.Shape}
	var ok bool
	if d.DType, ok = safetensors.ParseName(e.DType); !ok {
		return d, fmt.Errorf("tensor %q has no element type %q", e.Name, e.DType)
	}
	if _, ok := safetensors.Bytes(d.DType, e.Shape); !ok {
		return d, fmt.Errorf("tensor %q has no shape %v", e.Name, e.Shape)
	}
	n := digestRanges(e.Shape)
	raw, err := hex.DecodeString(e.Ranges)
	if err != nil || len(raw) != 8*n {
		return d, fmt.Errorf("tensor %q has digests %q, which are not %d of 16 hex digits", e.Name, e.Ranges, n)
	}
	for ; len(raw) > 0; raw = raw[8:] {
		sum := uint64(0)
		for _, b := range raw[:8] {
			sum = sum<<8 | uint64(b)
		}
		d.Ranges = append(d.Ranges, sum)
	}
	return d, nil
}

// A digestRun is what a file of digests says.
type digestRun struct {
	steps []int // in the order in which they were first written
	lines map[int]*digestLine
}

// readDigests reads a file of digests. A last line that is cut off, as a killed job leaves it,
// is left out.
func readDigests(r io.Reader) (*digestRun, error) {
	in := bufio.NewReaderSize(r, 1<<16)
	run := &digestRun{lines: map[int]*digestLine{}}
	for number := 1; ; number++ {
		text, err := readLine(in)
		if errors.Is(err, io.EOF) {
			if number == 1 {
				return nil, fmt.Errorf("line 1: it does not begin with a line of format %q", digestFormat)
			}
			return run, nil
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if number == 1 {
			var h digestHeader
			if json.Unmarshal(text, &h) != nil || h.Format != digestFormat {
				return nil, fmt.Errorf("line 1: it does not say format %q", digestFormat)
			}
			if h.Version != 1 {
				return nil, fmt.Errorf("line 1: version %d: this program reads version 1; use a newer one", h.Version)
			}
			continue
		}
		line := new(digestLine)
		if err := json.Unmarshal(text, line); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if run.lines[line.Step] == nil {
			run.steps = append(run.steps, line.Step)
		}
		run.lines[line.Step] = line
	}
}

// readLine returns the next whole line.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimSuffix(line, []byte("\n")), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(line) > maxDigestLine:
			return nil, fmt.Errorf("it has more than %d bytes", maxDigestLine)
		}
	}
}
