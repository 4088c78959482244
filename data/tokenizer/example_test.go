package tokenizer_test

import (
	"fmt"

	"github.com/gorun-spmd/gorun/data/tokenizer"
)

// A tokenizer that belongs to somebody's model.
func ExampleLoad() {
	tok, err := tokenizer.Load("testdata/llama3") // a folder with tokenizer.json
	if err != nil {
		fmt.Println(err)
		return
	}
	ids := tokenizer.NewEncoder(tok).Encode(tok.Prefix(), []byte("number, they"))
	for _, id := range ids {
		fmt.Printf("%d %s\n", id, tok.Token(id))
	}
	// Output:
	// 379 <s>
	// 349 number
	// 11 ,
	// 261  the
	// 88 y
}

// One that is trained on a text.
func ExampleTrain() {
	text := []byte("for i := range n { sum += i }\nfor i := range m { sum -= i }\n")
	tok, err := tokenizer.Train([][]byte{text}, 270)
	if err != nil {
		fmt.Println(err)
		return
	}
	ids := tokenizer.NewEncoder(tok).Encode(nil, text)
	fmt.Println(len(text), "bytes,", len(ids), "tokens, the last of the vocabulary is", fmt.Sprintf("%q", tok.Token(269)))
	fmt.Println(string(tok.Decode(nil, ids)) == string(text))
	// Output:
	// 60 bytes, 32 tokens, the last of the vocabulary is " sum"
	// true
}
