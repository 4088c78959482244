package main

import (
	"testing"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
)

// TestEncodings compares each instruction that is written by its encoding with what LLVM's
// assembler makes of it: echo 'fadd v21.4s, v21.4s, v23.4s' | llvm-mc -triple=aarch64 -show-encoding
func TestEncodings(t *testing.T) {
	v := func(i ...uint32) []operand.Op {
		var ops []operand.Op
		for _, i := range i {
			ops = append(ops, armVector(i))
		}
		return ops
	}
	n := func(i uint64) operand.Op { return operand.U64(i) }
	tested := map[string]bool{}
	for _, c := range []struct {
		name string
		ops  []operand.Op
		want string
	}{
		{"CMGT", v(22, 23, 22), "0x4eb636f6 // cmgt v22.4s, v23.4s, v22.4s"},
		{"FABS", v(19, 17), "0x4ea0fa33 // fabs v19.4s, v17.4s"},
		{"FADD", v(21, 21, 23), "0x4e37d6b5 // fadd v21.4s, v21.4s, v23.4s"},
		{"FADD", append(v(21, 21, 23), n(64)), "0x4e77d6b5 // fadd v21.2d, v21.2d, v23.2d"},
		{"FCMEQ", v(15, 17, 9), "0x4e29e62f // fcmeq v15.4s, v17.4s, v9.4s"},
		{"FCMGE", v(1, 0, 1), "0x6e21e401 // fcmge v1.4s, v0.4s, v1.4s"},
		{"FCMGT", v(24, 23, 16), "0x6eb0e6f8 // fcmgt v24.4s, v23.4s, v16.4s"},
		{"FCVTL", v(9, 30), "0x0e217bc9 // fcvtl v9.4s, v30.4h"},
		{"FCVTN", v(9, 30), "0x0e216bc9 // fcvtn v9.4h, v30.4s"},
		{"FCVTNS", v(28, 29), "0x4e21abbc // fcvtns v28.4s, v29.4s"},
		{"FDIV", v(25, 27, 15), "0x6e2fff79 // fdiv v25.4s, v27.4s, v15.4s"},
		{"FMAX", v(22, 22, 21), "0x4e35f6d6 // fmax v22.4s, v22.4s, v21.4s"},
		{"FMIN", v(16, 16, 20), "0x4eb4f610 // fmin v16.4s, v16.4s, v20.4s"},
		{"FMLA element", append(v(23, 25, 31), n(0), n(64)), "0x4fdf1337 // fmla v23.2d, v25.2d, v31.d[0]"},
		{"FMLA element", append(v(23, 25, 31), n(1), n(64)), "0x4fdf1b37 // fmla v23.2d, v25.2d, v31.d[1]"},
		{"FMLA element", append(v(23, 25, 31), n(0), n(32)), "0x4f9f1337 // fmla v23.4s, v25.4s, v31.s[0]"},
		{"FMLA element", append(v(19, 25, 28), n(1), n(32)), "0x4fbc1333 // fmla v19.4s, v25.4s, v28.s[1]"},
		{"FMLA element", append(v(21, 25, 28), n(2), n(32)), "0x4f9c1b35 // fmla v21.4s, v25.4s, v28.s[2]"},
		{"FMLA element", append(v(23, 25, 28), n(3), n(32)), "0x4fbc1b37 // fmla v23.4s, v25.4s, v28.s[3]"},
		{"FMUL element", append(v(23, 23, 26), n(0), n(64)), "0x4fda92f7 // fmul v23.2d, v23.2d, v26.d[0]"},
		{"FMUL element", append(v(23, 23, 26), n(0), n(32)), "0x4f9a92f7 // fmul v23.4s, v23.4s, v26.s[0]"},
		{"FMUL", v(26, 30, 31), "0x6e3fdfda // fmul v26.4s, v30.4s, v31.4s"},
		{"FRINTN", v(29, 24), "0x4e218b1d // frintn v29.4s, v24.4s"},
		{"FSQRT", v(10, 10), "0x6ea1f94a // fsqrt v10.4s, v10.4s"},
		{"FSUB", v(31, 5, 29), "0x4ebdd4bf // fsub v31.4s, v5.4s, v29.4s"},
		{"NOT", v(2, 2), "0x6e205842 // not v2.16b, v2.16b"},
		{"SCVTF", v(22, 20), "0x4e21da96 // scvtf v22.4s, v20.4s"},
		{"SHLL", v(9, 30), "0x2e613bc9 // shll v9.4s, v30.4h, #16"},
		{"SSHR", append(v(29, 28), n(1)), "0x4f3f079d // sshr v29.4s, v28.4s, #1"},
		{"SSHR", append(v(20, 19), n(23)), "0x4f290674 // sshr v20.4s, v19.4s, #23"},
		{"XTN", v(2, 4), "0x0e612882 // xtn v2.4h, v4.4s"},
	} {
		tested[c.name] = true
		name, ops := arm64(c.name, c.ops)
		if got := name + " " + ops[0].Asm(); got != "WORD $"+c.want {
			t.Errorf("%s: %s, want WORD $%s", c.name, got, c.want)
		}
	}
	for name := range threes {
		if !tested[name] {
			t.Errorf("%s is not tested", name)
		}
	}
	for name := range twos {
		if !tested[name] {
			t.Errorf("%s is not tested", name)
		}
	}
}

// TestCoalesce takes a copy out where its source is not used after it, and else leaves it.
func TestCoalesce(t *testing.T) {
	c := build.NewContext()
	a, b, d, e := c.ZMM(), c.ZMM(), c.ZMM(), c.ZMM()
	op := func(name string, dst operand.Op, ops ...operand.Op) ir.Node {
		return &ir.Instruction{Opcode: name, Operands: append([]operand.Op{dst}, ops...), Inputs: ops, Outputs: []operand.Op{dst}}
	}
	for _, test := range []struct {
		name  string
		nodes []ir.Node
		want  int // copies
	}{
		{"its last use", []ir.Node{op("FADD", b, a, a), op("MOV", d, b), op("FMUL", d, d, d)}, 0},
		{"used later", []ir.Node{op("FADD", b, a, a), op("MOV", d, b), op("FMUL", d, d, b)}, 1},
		{"of another block", []ir.Node{op("FADD", b, a, a), ir.Label("loop"), op("MOV", d, b), op("FMUL", d, d, d)}, 1},
		{"the copy's register is in use", []ir.Node{op("FADD", b, a, a), op("FADD", e, d, d), op("MOV", d, b)}, 1},
		{"an accumulator", []ir.Node{op("FADD", b, d, a), op("MOV", d, b)}, 0},
	} {
		copies := 0
		for _, n := range coalesce(test.nodes) {
			if i, ok := n.(*ir.Instruction); ok && i.Opcode == "MOV" {
				copies++
			} else if ok && test.want == 0 && (uses(i.Operands, b) || uses(i.Inputs, b) || uses(i.Outputs, b)) {
				t.Errorf("%s: %v still has the source of the copy", test.name, i)
			}
		}
		if copies != test.want {
			t.Errorf("%s: %d copies are left, want %d", test.name, copies, test.want)
		}
	}
}
