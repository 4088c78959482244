package tokenizer

// A class is a kind of byte in program text.
type class uint8

const (
	other  class = iota // punctuation and control bytes
	letter              // identifiers; every byte of a UTF-8 letter counts
	digit
	space
	tab
	newline
)

// classes holds the class of every byte.
var classes = func() (c [256]class) {
	for b := range c {
		switch {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', b == '_', b >= 0x80:
			c[b] = letter
		case '0' <= b && b <= '9':
			c[b] = digit
		}
	}
	c[' '], c['\t'], c['\n'], c['\r'] = space, tab, newline, newline
	return c
}()

// wordLength returns the length of the word that text begins with, between 1
// and maxWordBytes. text must not be empty. Written as a regular expression, a
// word is the first of these that matches:
//
//	[\n\r]+[ \t]*                        line ends with the indentation of the next line
//	\t+                                  tabs elsewhere
//	' '+ before ' '                      all but the last of several spaces
//	[' ' other]?[letter][letter digit]*  an identifier with the space or mark before it
//	' '?[digit]{1,3}                     up to three digits
//	' '?[other]+([\n\r]+[ \t]*)?         punctuation, to the beginning of the next line
//	' '+                                 spaces before a line end, a tab or the end
//
// Words that join characters which often stand together make fewer tokens: on Go source
// an eighth fewer than words that separate letters, marks and line ends. The words of a
// text, in order, are the text.
func wordLength(text []byte) int {
	text = text[:min(len(text), maxWordBytes)]
	switch classes[text[0]] {
	case newline:
		return lineEnd(text, 0)
	case tab:
		return run(text, 1, tab)
	case space:
		spaces := run(text, 1, space)
		if spaces == len(text) || classes[text[spaces]] == newline || classes[text[spaces]] == tab {
			return spaces
		}
		if spaces > 1 {
			return spaces - 1 // the last one belongs to the next word
		}
		return body(text, 1)
	case other:
		if len(text) > 1 && classes[text[1]] == letter {
			return body(text, 1)
		}
	}
	return body(text, 0)
}

// body returns the end of the identifier, number or punctuation at text[at].
func body(text []byte, at int) int {
	switch classes[text[at]] {
	case letter:
		n := at + 1
		for n < len(text) && (classes[text[n]] == letter || classes[text[n]] == digit) {
			n++
		}
		return n
	case digit:
		return run(text[:min(len(text), at+3)], at+1, digit)
	}
	return lineEnd(text, run(text, at+1, other))
}

// lineEnd returns the end of the line ends at text[n], if there are any, and of
// the indentation after them.
func lineEnd(text []byte, n int) int {
	end := run(text, n, newline)
	if end == n {
		return n
	}
	for end < len(text) && (classes[text[end]] == space || classes[text[end]] == tab) {
		end++
	}
	return end
}

// run returns the first index from n on whose byte is not of class c.
func run(text []byte, n int, c class) int {
	for n < len(text) && classes[text[n]] == c {
		n++
	}
	return n
}
