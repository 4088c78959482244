// Package criteo reads click logs in the format of the Criteo data sets, and
// generates files of that format for trials.
//
// A line is one impression, 40 fields separated by tabs:
//
//	label          1 if it was clicked, else 0
//	13 counts      integers, may be negative; empty: missing
//	26 categories  8 hexadecimal digits, the hash of something; empty: missing
//
// So are the lines of the data set of the Kaggle challenge, one file train.txt of 45 840 617,
// and of the one of 1 TB, the files day_0 to day_23 of some 180 million each. ReadFile takes a
// file, packed by gzip or not, or the folder of either.
package criteo

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// The fields of a line.
const (
	Dense       = 13
	Categorical = 26
	fields      = 1 + Dense + Categorical
)

// Missing is the code of a category that a line does not have.
const Missing = -1

// Data is a click log in memory. Row i has the features Counts[i·Dense:] and
// Codes[i·Categorical:].
type Data struct {
	Labels []float32
	Counts []float32 // log(1 + max(count, 0)); 0 for a missing one
	Codes  []int64   // 32 bits, or Missing
}

// Rows returns the number of rows.
func (d *Data) Rows() int { return len(d.Labels) }

// Options say how to read.
type Options struct {
	Rows   int    // after how many good rows to stop, of a folder of days in equal parts from the start of each; 0: read all
	Strict bool   // return the first malformed line as an error
	Seed   uint64 // of a log that Load invents
}

// Bad describes the malformed lines of a file.
type Bad struct {
	Lines   int            // how many
	Reasons map[string]int // how many of each kind
	First   []string       // of the first ones, "line 17: 39 fields, want 40"; in a folder "day_2: line 17: …"
}

// named is how many malformed lines are named.
const named = 5

// longest is the largest number of bytes that a line may have.
const longest = 1 << 16

// Read reads a click log. It skips malformed lines and describes them in bad.
func Read(in io.Reader, o Options) (d *Data, bad *Bad, err error) {
	d, bad = &Data{}, &Bad{Reasons: map[string]int{}}
	if err := d.read(in, o, "", bad); err != nil {
		return nil, nil, err
	}
	return d, bad, nil
}

// read adds rows until there are as many as o.Rows says. where comes before the number of a line in bad.
func (d *Data) read(in io.Reader, o Options, where string, bad *Bad) error {
	r := bufio.NewReaderSize(in, longest)
	for number := 1; o.Rows == 0 || d.Rows() < o.Rows; number++ {
		line, err := r.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = r.ReadSlice('\n')
		}
		if err != nil && err != io.EOF {
			return fmt.Errorf("line %d: %w", number, err)
		}
		if len(line) == 0 {
			break
		}
		kind, detail := "line too long", fmt.Sprintf("longer than %d bytes", longest)
		if !long {
			kind, detail = d.add(bytes.TrimRight(line, "\r\n"))
		}
		if kind != "" {
			if o.Strict {
				return fmt.Errorf("line %d: %s", number, detail)
			}
			bad.Lines++
			bad.Reasons[kind]++
			if len(bad.First) < named {
				bad.First = append(bad.First, fmt.Sprintf("%sline %d: %s", where, number, detail))
			}
		}
	}
	return nil
}

// add adds the row of a line. If the line is malformed it adds nothing and returns the
// reason.
func (d *Data) add(line []byte) (kind, detail string) {
	parts := bytes.Split(line, []byte("\t"))
	if len(parts) != fields {
		return "wrong number of fields", fmt.Sprintf("%d fields, want %d", len(parts), fields)
	}
	var counts [Dense]float32
	var codes [Categorical]int64
	label := string(parts[0])
	if label != "0" && label != "1" {
		return "bad label", fmt.Sprintf("the label is %.20q, want 0 or 1", label)
	}
	for i, p := range parts[1 : 1+Dense] {
		if len(p) == 0 {
			continue
		}
		n, err := strconv.ParseInt(string(p), 10, 64)
		if err != nil {
			return "bad count", fmt.Sprintf("count %d is %.20q, want an integer or nothing", i+1, p)
		}
		counts[i] = float32(math.Log1p(float64(max(n, 0))))
	}
	for i, p := range parts[1+Dense:] {
		if len(p) == 0 {
			codes[i] = Missing
			continue
		}
		n, err := strconv.ParseUint(string(p), 16, 32)
		if err != nil {
			return "bad category", fmt.Sprintf("category %d is %.20q, want up to 8 hexadecimal digits or nothing", i+1, p)
		}
		codes[i] = int64(n)
	}
	d.Labels = append(d.Labels, float32(label[0]-'0'))
	d.Counts = append(d.Counts, counts[:]...)
	d.Codes = append(d.Codes, codes[:]...)
	return "", ""
}

// Cut returns the rows from lo to hi; they share memory with d.
func (d *Data) Cut(lo, hi int) *Data {
	return &Data{Labels: d.Labels[lo:hi], Counts: d.Counts[lo*Dense : hi*Dense], Codes: d.Codes[lo*Categorical : hi*Categorical]}
}

// Load has rank 0 read what ReadFile reads and hands it to all ranks. With the path "" it invents a log
// of o.Rows lines as Generate does. bad is what rank 0 left out, nil on the others.
func Load(ctx context.Context, world *comm.Comm, path string, o Options) (d *Data, bad *Bad, err error) {
	defer fault.Locate(&err)
	d = new(Data)
	if world.Rank() == 0 && path != "" {
		d, bad, err = ReadFile(path, o)
	} else if world.Rank() == 0 {
		var text bytes.Buffer
		if err = Generate(&text, o.Rows, o.Seed); err == nil {
			d, bad, err = Read(&text, o)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return d, bad, d.Broadcast(ctx, world)
}

// Broadcast sends the rows of rank 0 to all ranks; on the others they replace d.
func (d *Data) Broadcast(ctx context.Context, world *comm.Comm) error {
	rows := []int64{int64(d.Rows())}
	if err := comm.Broadcast(ctx, world, rows, 0); err != nil {
		return err
	}
	n := int(rows[0])
	if world.Rank() != 0 {
		*d = Data{Labels: make([]float32, n), Counts: make([]float32, n*Dense), Codes: make([]int64, n*Categorical)}
	}
	return cmp.Or(comm.Broadcast(ctx, world, d.Labels, 0), comm.Broadcast(ctx, world, d.Counts, 0), comm.Broadcast(ctx, world, d.Codes, 0))
}
