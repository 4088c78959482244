package main

import (
	"fmt"
	"testing"

	"github.com/mmcloughlin/avo/reg"
)

// TestTileEncodings compares instructions of AMX with what LLVM's disassembler makes of their bytes:
// echo 0xc4 0xe2 0x7b 0x49 0xd0 | llvm-mc -triple=x86_64 -disassemble
func TestTileEncodings(t *testing.T) {
	for want, code := range map[string][]byte{
		"c4e27b49c0 tilezero %tmm0":                              tileZero(0),
		"c4e27b49d8 tilezero %tmm3":                              tileZero(3),
		"c4e24a5cc4 tdpbf16ps %tmm6, %tmm4, %tmm0":               dotTiles(0, 4, 6),
		"c4e2425cdd tdpbf16ps %tmm7, %tmm5, %tmm3":               dotTiles(3, 5, 7),
		"c4e27b4ba41000000000 tileloadd (%rax,%rdx), %tmm4":      tileMove(false, 4, reg.RAX, reg.RDX, 0),
		"c4a27b4bbc2b40000000 tileloadd 64(%rbx,%r13), %tmm7":    tileMove(false, 7, reg.RBX, reg.R13, 64),
		"c4827a4b9c2c40080000 tilestored %tmm3, 2112(%r12,%r13)": tileMove(true, 3, reg.R12, reg.R13, 2112),
	} {
		if got := fmt.Sprintf("%x", code); got != want[:len(got)] || want[len(got)] != ' ' {
			t.Errorf("%s: %s", want, got)
		}
	}
}
