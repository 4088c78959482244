package data

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/object"
)

// Lines gives access to the records of a text file by number, so that any rank reads any record
// directly. It maps the file and keeps 8 bytes of memory for each record.
type Lines struct {
	file
	starts []int // of each record, and the end of the last
}

// OpenLines opens a file whose records are its lines. An empty line is a record; the end of the file
// after a line end is none.
func OpenLines(path string) (_ *Lines, err error) {
	defer fault.Locate(&err)
	return openLines("OpenLines", path, lineEnd, false)
}

func lineEnd(text []byte) int { return bytes.IndexByte(text, '\n') }

// openLines finds the records; end returns the index of the first record's line end, -1 if there is
// none. With values, a mark of UTF-8 at the beginning and empty lines are not part of a record, or
// stand before what is in it.
func openLines(op, path string, end func(text []byte) int, values bool) (*Lines, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, fmt.Errorf("data: %s: %w", op, err)
	}
	l := &Lines{file: f, starts: []int{0}}
	if values && bytes.HasPrefix(f.bytes, []byte("\ufeff")) {
		l.starts[0] = len("\ufeff")
	}
	for at := l.starts[0]; at < len(f.bytes); {
		from := at
		if n := end(f.bytes[at:]); n < 0 {
			at = len(f.bytes)
		} else {
			at += n + 1
		}
		if values && len(bytes.Trim(f.bytes[from:at], "\r\n")) == 0 {
			continue
		}
		l.starts = append(l.starts, at)
	}
	return l, nil
}

// Len returns the number of records.
func (l *Lines) Len() int { return len(l.starts) - 1 }

// At returns record i, from 0 to Len()-1, without its line end. The caller must not modify it. It throws for another i, and after
// Close.
func (l *Lines) At(i int) []byte {
	l.want(i, l.Len())
	line := l.bytes[l.starts[i]:l.starts[i+1]]
	line = bytes.TrimSuffix(line, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r"))
}

// JSON is a file of JSON lines, each a value of type T.
type JSON[T any] struct{ *Lines }

// OpenJSON opens a file of JSON lines. Empty lines are left out. A field of T that package encoding/json does not
// fill, as its name begins with no capital letter, is an error.
func OpenJSON[T any](path string) (_ JSON[T], err error) {
	defer fault.Locate(&err)
	if err := object.CheckJSON(reflect.TypeFor[T]()); err != nil {
		return JSON[T]{}, fmt.Errorf("data: OpenJSON: %w", err)
	}
	l, err := openLines("OpenJSON", path, lineEnd, true)
	return JSON[T]{l}, err
}

// At returns the value of line i, from 0 to Len()-1.
func (j JSON[T]) At(i int) (value T, err error) {
	defer fault.Catch(&err)
	if err := json.Unmarshal(j.Lines.At(i), &value); err != nil {
		line := bytes.Count(bytes.TrimSuffix(j.bytes[:j.starts[i+1]], []byte("\n")), []byte("\n"))
		return value, fmt.Errorf("data: %s: line %d: %w", j.path, line+1, err)
	}
	return value, nil
}

// A Table is a file of comma-separated values, or of tab-separated ones, with the names of the columns
// in its first row. A field in double quotes may have commas, line ends and doubled quotes (RFC 4180).
// Empty lines are left out.
type Table struct {
	*Lines
	comma rune
	names []string
}

// OpenTable opens a table whose fields are separated by comma: ',' or '\t' or ';'.
func OpenTable(path string, comma rune) (_ *Table, err error) {
	defer fault.Locate(&err)
	l, err := openLines("OpenTable", path, rowEnd, true)
	if err != nil {
		return nil, err
	}
	t := &Table{Lines: l, comma: comma}
	if len(l.starts) < 2 {
		l.Close()
		return nil, fmt.Errorf("data: OpenTable: %s is empty; its first row must name the columns", path)
	}
	if t.names, err = t.row(0); err != nil {
		l.Close()
		return nil, fmt.Errorf("data: OpenTable: %s: the names of the columns: %w", path, err)
	}
	return t, nil
}

// rowEnd returns the first line end that is not in quotes.
func rowEnd(text []byte) int {
	quoted := false
	for i := 0; ; i++ {
		next := bytes.IndexAny(text[i:], "\"\n")
		if next < 0 {
			return -1
		}
		i += next
		if text[i] == '"' {
			quoted = !quoted
		} else if !quoted {
			return i
		}
	}
}

// Columns returns the names in the first row.
func (t *Table) Columns() []string { return slices.Clone(t.names) }

// Column returns the index of a column. The error lists the table's columns.
func (t *Table) Column(name string) (_ int, err error) {
	defer fault.Locate(&err)
	if i := slices.Index(t.names, name); i >= 0 {
		return i, nil
	}
	return 0, fmt.Errorf("data: %s has no column %q, but %q", t.path, name, t.names)
}

// Len returns the number of rows after the first.
func (t *Table) Len() int { return t.Lines.Len() - 1 }

// At returns the fields of row i, from 0 to Len()-1: as many as there are columns.
func (t *Table) At(i int) (fields []string, err error) {
	defer fault.Catch(&err)
	t.want(i, t.Len())
	fields, err = t.row(i + 1)
	if err == nil && len(fields) != len(t.names) {
		err = fmt.Errorf("%d fields, and %d columns are named", len(fields), len(t.names))
	}
	if err != nil {
		err = fmt.Errorf("data: %s: row %d, from 0: %w", t.path, i, err)
	}
	return fields, err
}

// row returns the fields of a record.
func (t *Table) row(i int) ([]string, error) {
	r := csv.NewReader(bytes.NewReader(t.Lines.At(i)))
	r.Comma, r.FieldsPerRecord = t.comma, -1
	fields, err := r.Read()
	if err != nil {
		var at *csv.ParseError
		if errors.As(err, &at) { // its line is one of the row
			err = at.Err
		}
		return nil, fmt.Errorf("%w: %.40q", err, t.Lines.At(i))
	}
	return fields, nil
}
