package tokenizer

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

func TestMarshalRoundTrip(t *testing.T) {
	for _, size := range []int{MinVocab, MinVocab + 50} {
		want := trained(t, size, program)
		data, err := want.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.merges, want.merges) || !slices.EqualFunc(got.tokens, want.tokens, bytes.Equal) {
			t.Errorf("vocabulary %d: what was parsed differs from what was written", size)
		}
	}
}

func TestParseFindsEveryDamage(t *testing.T) {
	data, err := trained(t, MinVocab+5, program).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		bad := bytes.Clone(data)
		bad[i] ^= 1
		if _, err := Parse(bad); err == nil {
			t.Errorf("bit 0 of byte %d flipped: no error", i)
		}
		if _, err := Parse(data[:i]); err == nil {
			t.Errorf("cut to %d bytes: no error", i)
		}
	}
	if _, err := Parse(append(bytes.Clone(data), 0)); err == nil {
		t.Errorf("a byte too many: no error")
	}
}

// file is what MarshalBinary would write for these merges, checksum and all.
func file(merges ...pair) []byte {
	data := binary.LittleEndian.AppendUint32([]byte(magic), uint32(len(merges)))
	for _, m := range merges {
		data = binary.LittleEndian.AppendUint16(data, uint16(m.left))
		data = binary.LittleEndian.AppendUint16(data, uint16(m.right))
	}
	sum := sha256.Sum256(data)
	return append(data, sum[:]...)
}

func TestParseRefusesMerges(t *testing.T) {
	doubling := []pair{{'a', 'a'}}
	for i := range 5 {
		doubling = append(doubling, pair{int32(MinVocab + i), int32(MinVocab + i)})
	}
	for _, c := range []struct {
		name   string
		merges []pair
		want   string
	}{
		{"itself", []pair{{MinVocab, 'a'}}, "merge 0 joins token 257"},
		{"a later one", []pair{{'a', 'b'}, {'a', 300}}, "merge 1 joins token 300"},
		{"the end of text", []pair{{EndOfText, 'a'}}, "merge 0 joins token 256"},
		{"twice", []pair{{'a', 'b'}, {'a', 'b'}}, "a second time"},
		{"a long token", doubling, "64 bytes"},
		{"too many", make([]pair, MaxVocab), "65536 merges"},
	} {
		_, err := Parse(file(c.merges...))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(file(), true)
	f.Add(file(pair{'a', 'b'}, pair{MinVocab, 'c'}), true)
	f.Add([]byte("gorunbp1"), false)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		if seal && len(data) >= sha256.Size { // let the fuzzer past the checksum
			sum := sha256.Sum256(data[:len(data)-sha256.Size])
			data = append(bytes.Clone(data[:len(data)-sha256.Size]), sum[:]...)
		}
		tok, err := Parse(data)
		if err != nil {
			return
		}
		again, err := tok.MarshalBinary()
		if err != nil || !bytes.Equal(again, data) {
			t.Errorf("parsed %x, written back %x (%v)", data, again, err)
		}
		text := []byte("abcabc")
		if got := tok.Decode(nil, NewEncoder(tok).Encode(nil, text)); !bytes.Equal(got, text) {
			t.Errorf("round trip gave %q", got)
		}
	})
}
