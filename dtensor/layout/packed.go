package layout

import (
	"encoding/binary"
	"fmt"
)

// intList is a list of integers packed into a string, eight bytes each, so that
// a value holding one can be compared with == and used as a map key.
type intList string

// pack returns v as an intList. The empty list is "".
func pack(v []int) intList {
	if len(v) == 0 {
		return ""
	}
	b := make([]byte, 0, 8*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, uint64(x))
	}
	return intList(b)
}

// len returns how many integers p holds.
func (p intList) len() int { return len(p) / 8 }

// at returns the integer at index i.
func (p intList) at(i int) int {
	s := p[8*i : 8*i+8]
	return int(uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56)
}

// appendTo appends the integers to dst.
func (p intList) appendTo(dst []int) []int {
	for i := range p.len() {
		dst = append(dst, p.at(i))
	}
	return dst
}

// slice returns the integers as a fresh slice, nil for none.
func (p intList) slice() []int {
	if p == "" {
		return nil
	}
	return p.appendTo(make([]int, 0, p.len()))
}

// sum returns the sum of the integers.
func (p intList) sum() int {
	total := 0
	for i := range p.len() {
		total += p.at(i)
	}
	return total
}

// String prints the integers as fmt prints a slice: [1 3 1 3].
func (p intList) String() string { return fmt.Sprint(p.slice()) }
