package criteo

import (
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// ReadFile reads a file, or of a folder its train.txt or its day_0, day_1 and so on, in the order
// of the days. It reads through gzip what has a name that ends in .gz.
func ReadFile(path string, o Options) (_ *Data, _ *Bad, err error) {
	defer fault.Locate(&err)
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	names := []string{""}
	if info.IsDir() {
		if names, err = files(path); err != nil {
			return nil, nil, err
		}
	}
	d, bad := &Data{}, &Bad{Reasons: map[string]int{}}
	for i, name := range names {
		where, part := "", o
		if name != "" {
			where = name + ": "
		}
		if o.Rows > 0 { // as many as the days that are left have to give
			left := len(names) - i
			part.Rows = d.Rows() + ints.DivUp(o.Rows-d.Rows(), left)
			if part.Rows == d.Rows() {
				break
			}
		}
		if err := d.readOne(filepath.Join(path, name), part, where, bad); err != nil {
			return nil, nil, err
		}
	}
	return d, bad, nil
}

// readOne adds the rows of one file.
func (d *Data) readOne(path string, o Options, where string, bad *Bad) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	in := io.Reader(f)
	if strings.HasSuffix(path, ".gz") {
		if in, err = gzip.NewReader(f); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if err := d.read(in, o, where, bad); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// files lists the files of a folder that have a log, as ReadFile takes them.
func files(folder string) ([]string, error) {
	type day struct {
		number int
		name   string
	}
	var days []day
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		number, ok := strings.CutPrefix(strings.TrimSuffix(e.Name(), ".gz"), "day_")
		n, err := strconv.ParseUint(number, 10, 31)
		if !ok || err != nil || e.IsDir() {
			continue
		}
		days = append(days, day{int(n), e.Name()})
	}
	slices.SortFunc(days, func(a, b day) int { return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.name, b.name)) })
	var names []string
	for i, d := range days {
		if i > 0 && d.number == days[i-1].number {
			return nil, fmt.Errorf("%s: %s and %s are one day; leave one of them", folder, days[i-1].name, d.name)
		}
		names = append(names, d.name)
	}
	if len(names) > 0 {
		return names, nil
	}
	for _, name := range []string{"train.txt", "train.txt.gz"} {
		switch _, err := os.Stat(filepath.Join(folder, name)); {
		case err == nil:
			return []string{name}, nil
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s: a folder without day_0 or train.txt; give a log in Criteo's format, or a folder with one of these", folder)
}
