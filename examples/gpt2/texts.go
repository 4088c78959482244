package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gorun-spmd/gorun/data/tokenizer"
)

// A texts turns texts into token ids and back, by the tokenizer of a model. Without one
// they are the ids themselves, separated by commas or white space.
type texts struct{ tokenizer *tokenizer.Tokenizer }

func newTexts(o *options) (t texts, err error) {
	if !o.ids {
		t.tokenizer, err = tokenizer.Load(o.model)
	}
	if err != nil {
		err = fmt.Errorf("gpt2: %w; with -ids texts are token ids", err)
	}
	return t, err
}

func (t texts) encode(text string) ([]int32, error) {
	if t.tokenizer != nil {
		return tokenizer.NewEncoder(t.tokenizer).Encode(nil, []byte(text)), nil
	}
	var list []int32
	for _, word := range strings.Fields(strings.ReplaceAll(text, ",", " ")) {
		id, err := strconv.ParseInt(word, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("gpt2: %q is not a token id", word)
		}
		list = append(list, int32(id))
	}
	return list, nil
}

// begin returns a prompt as the model wants it: after what begins each of its texts.
func (t texts) begin(prompt []int32) []int64 {
	if t.tokenizer != nil {
		prompt = slices.Concat(t.tokenizer.Prefix(), prompt)
	}
	wide := make([]int64, len(prompt))
	for i, id := range prompt {
		wide[i] = int64(id)
	}
	return wide
}

func (t texts) decode(ids []int64) string {
	if t.tokenizer == nil {
		return strings.Trim(fmt.Sprint(ids), "[]")
	}
	var narrow []int32
	for _, id := range ids {
		if int(id) < t.tokenizer.VocabSize() { // a model may have more tokens, to make their number a round one
			narrow = append(narrow, int32(id))
		}
	}
	return string(t.tokenizer.Decode(nil, narrow))
}
