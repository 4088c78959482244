package safetensors

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// IndexName is the file name of the index of a model in several files.
const IndexName = "model.safetensors.index.json"

// ParseIndex reads the index of a model in several files and returns the file of each
// tensor. A file is a plain name, so it is in the directory of the index. The error is a
// *FormatError.
func ParseIndex(text []byte) (files map[string]string, err error) {
	p := &parser{json.NewDecoder(bytes.NewReader(text)), 0}
	p.UseNumber()
	if !utf8.Valid(text) {
		return nil, &FormatError{0, "the index is not UTF-8"}
	}
	err = p.object("the index", func(field string) error {
		if field != "weight_map" {
			var ignored json.RawMessage
			if err := p.Decode(&ignored); err != nil {
				return p.problem("this is no JSON: %v", err)
			}
			return nil
		}
		files = map[string]string{}
		return p.object(field, func(name string) error {
			file, err := p.text("the file of tensor " + name)
			if err == nil && !PlainName(file) {
				err = p.problem("tensor %q is said to be in %q, which is not the plain name of a file beside the index", name, file)
			}
			files[name] = file
			return err
		})
	})
	if err == nil && files == nil {
		err = p.problem("the index has no weight_map")
	}
	if err != nil {
		return nil, err
	}
	return files, nil
}

// EncodeIndex is the inverse of ParseIndex, in the form that Hugging Face's programs
// write. totalBytes is the size of all tensors together.
func EncodeIndex(files map[string]string, totalBytes int) []byte {
	text, err := json.MarshalIndent(struct {
		Metadata map[string]int    `json:"metadata"`
		Files    map[string]string `json:"weight_map"`
	}{map[string]int{"total_size": totalBytes}, files}, "", "  ")
	if err != nil {
		panic(err) // strings and integers always encode
	}
	return append(text, '\n')
}

// PlainName reports whether name is that of a file in the folder at hand: not
// empty, without separators, and neither . nor ..
func PlainName(name string) bool {
	return filepath.IsLocal(name) && name != "." && !strings.ContainsAny(name, "/\\\x00")
}
