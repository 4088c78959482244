package metrics

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gorun-spmd/gorun/internal/fault"
)

// A Writer writes the values of each step for people or programs. One goroutine uses it, on
// one rank of a job: every rank has the same values after Reduce.
type Writer interface {
	Write(step int, values ...Value) error
	Close() error
}

// Open returns a Writer to path. The name says which: it writes JSON lines if it ends in .jsonl,
// CSV if it ends in .csv, else TensorBoard's event files in a directory. It appends to an
// existing file, so a run that goes on from a checkpoint adds to it.
func Open(path string) (_ Writer, err error) {
	defer fault.Locate(&err)
	extension := filepath.Ext(path)
	if extension != ".jsonl" && extension != ".csv" {
		return NewTensorBoard(path)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return nil, fmt.Errorf("metrics: Open: %w", err)
	}
	if extension == ".jsonl" {
		return NewJSONLines(f), nil
	}
	names, err := csv.NewReader(f).Read()
	if err != nil && err != io.EOF || len(names) > 0 && names[0] != "step" {
		err = fmt.Errorf("metrics: Open: %s is no CSV file that begins with the column step (%w); give another path", path, cmp.Or(err, io.EOF))
		return nil, errors.Join(err, f.Close())
	}
	return &csvFile{w: f, names: slices.Clip(names)}, nil
}

// NewConsole returns a Writer of readable lines to w: "step 200  loss 2.103  rate 0.0003". Close
// does not close w.
func NewConsole(w io.Writer) Writer { return console{w} }

type console struct{ w io.Writer }

func (c console) Write(step int, values ...Value) error {
	line := fmt.Sprintf("step %d", step)
	for _, v := range values {
		line += fmt.Sprintf("  %s %.4g", v.Name, v.Value)
	}
	_, err := fmt.Fprintln(c.w, line)
	return err
}

func (console) Close() error { return nil }

// NewJSONLines returns a Writer of a JSON object for each step, on a line of its own, to w, which
// Close closes: {"step":200,"loss":2.103}. A value that is not finite is null.
func NewJSONLines(w io.WriteCloser) Writer { return &jsonLines{w} }

type jsonLines struct{ w io.WriteCloser }

func (j *jsonLines) Write(step int, values ...Value) error {
	line := fmt.Appendf(nil, `{"step":%d`, step)
	for _, v := range values {
		name, err := json.Marshal(v.Name)
		if err != nil {
			return err
		}
		number := []byte("null")
		if !math.IsNaN(v.Value) && !math.IsInf(v.Value, 0) {
			number = strconv.AppendFloat(nil, v.Value, 'g', -1, 64)
		}
		line = append(append(append(append(line, ','), name...), ':'), number...)
	}
	_, err := j.w.Write(append(line, "}\n"...))
	return err
}

func (j *jsonLines) Close() error { return j.w.Close() }

// NewCSV returns a Writer of a row for each step to w, which Close closes. The first step names
// the columns; later ones may leave some out and have no others.
func NewCSV(w io.WriteCloser) Writer { return &csvFile{w: w} }

type csvFile struct {
	w     io.WriteCloser
	names []string // of the columns
}

func (c *csvFile) Write(step int, values ...Value) error {
	var text bytes.Buffer
	rows := csv.NewWriter(&text)
	if c.names == nil {
		c.names = []string{"step"}
		for _, v := range values {
			c.names = append(c.names, v.Name)
		}
		if err := rows.Write(c.names); err != nil {
			return err
		}
	}
	row := make([]string, len(c.names))
	row[0] = strconv.Itoa(step)
	for _, v := range values {
		at := slices.Index(c.names, v.Name)
		if at < 1 {
			return fmt.Errorf("metrics: the file has the columns %s, and %s is none of them; write it from the first step on",
				strings.Join(c.names, ", "), v.Name)
		}
		row[at] = strconv.FormatFloat(v.Value, 'g', -1, 64)
	}
	if err := rows.Write(row); err != nil {
		return err
	}
	rows.Flush()
	_, err := c.w.Write(text.Bytes())
	return err
}

func (c *csvFile) Close() error { return c.w.Close() }
