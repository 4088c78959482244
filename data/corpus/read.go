package corpus

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"unicode/utf8"
)

// read reads files up to maxBytes of text in all, and returns the kept ones in their
// order. If not all fit, it takes them by rank, as if at random, and cuts the one that
// crosses the limit. It skips files that are empty or not text; if the user named such a
// file, that is an error.
func read(found []file, maxBytes int) (kept []file, skipped int, err error) {
	files := slices.Clone(found)
	total := int64(0)
	for _, f := range files {
		total += f.bytes
	}
	if total > int64(maxBytes) {
		slices.SortStableFunc(files, func(a, b file) int {
			x, y := a.rank(), b.rank()
			return bytes.Compare(x[:], y[:])
		})
	}
	left := maxBytes
	for _, f := range files {
		if left == 0 {
			break
		}
		var whole bool
		f.text, whole, err = readText(f.path, left)
		switch {
		case err != nil:
			return nil, 0, pathError(f.path, err)
		case f.named && len(f.text) == 0:
			return nil, 0, fmt.Errorf("%s: the file is empty; name files of plain text", f.path)
		case f.named && !isText(f.text):
			return nil, 0, fmt.Errorf("%s: %w", f.path, errNotText)
		case len(f.text) == 0 || !isText(f.text):
			skipped++
			continue
		}
		kept = append(kept, f)
		if left -= len(f.text); !whole {
			break
		}
	}
	byOrder(kept)
	return kept, skipped, nil
}

// readText reads at most limit bytes and tells whether that was the whole file.
// A longer one is cut after the last line end that fits, if there is one.
func readText(path string, limit int) (text []byte, whole bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	text, err = io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return nil, false, err
	}
	if len(text) <= limit {
		return slices.Clip(text), true, nil
	}
	text = text[:limit]
	if end := bytes.LastIndexByte(text, '\n'); end >= 0 {
		text = text[:end+1]
	}
	return slices.Clip(text), false, nil
}

// isText reports whether text has no NUL byte and at most one byte in ten that
// is not UTF-8, so that text in an older encoding passes.
func isText(text []byte) bool {
	if bytes.IndexByte(text, 0) >= 0 {
		return false
	}
	if utf8.Valid(text) {
		return true
	}
	invalid, length := 0, len(text)
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		if r == utf8.RuneError && n == 1 {
			invalid++
		}
		text = text[n:]
	}
	return invalid*10 <= length
}

// One byte in heldOutShare is held out.
const heldOutShare = 20

// split chooses about one byte in heldOutShare, at most limit, to be held out:
// whole files by rank, so that no document is in both parts. If no file is
// small enough, the tail of the largest is held out.
func split(files []file, limit int) (train, heldOut []Document) {
	total := 0
	for _, f := range files {
		total += len(f.text)
	}
	share := min(total/heldOutShare, limit)

	byRank := slices.Clone(files)
	slices.SortStableFunc(byRank, func(a, b file) int {
		x, y := a.rank(), b.rank()
		return bytes.Compare(x[:], y[:])
	})
	held := map[int]bool{} // by order
	taken := 0
	for _, f := range byRank {
		if taken >= share-share/10 {
			break // a few bytes more would come from small files only
		}
		if taken+len(f.text) <= share {
			held[f.order] = true
			taken += len(f.text)
		}
	}
	if taken == 0 {
		return splitLargest(files, share)
	}
	for _, f := range files {
		if held[f.order] {
			heldOut = append(heldOut, Document{f.name, f.text})
		} else {
			train = append(train, Document{f.name, f.text})
		}
	}
	return train, heldOut
}

// splitLargest holds out the last share bytes of the largest file, to the
// nearest line if there is one.
func splitLargest(files []file, share int) (train, heldOut []Document) {
	largest := slices.MaxFunc(files, func(a, b file) int { return cmp.Compare(len(a.text), len(b.text)) })
	for _, f := range files {
		if f.order != largest.order {
			train = append(train, Document{f.name, f.text})
			continue
		}
		at := len(f.text) - max(share, 1)
		if line := bytes.IndexByte(f.text[at:], '\n'); line >= 0 && at+line+1 < len(f.text) {
			at += line + 1
		}
		if at > 0 {
			train = append(train, Document{f.name, f.text[:at]})
		}
		heldOut = append(heldOut, Document{f.name, f.text[at:]})
	}
	return train, heldOut
}
