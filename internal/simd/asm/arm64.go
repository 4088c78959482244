package main

import (
	"fmt"
	"strings"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/reg"
)

// avo knows amd64 alone. Of what it makes for arm64 it names neither instructions nor
// registers, but it allocates registers: a kernel is written in avo's registers and under
// the names of Arm's manual, operands in Arm's order, and arm64 turns it into what Go's
// assembler reads. Z0 to Z31 stand for V0 to V31, and avo's general registers for R0 to R15.

// A text is an operand as Go's assembler reads it.
type text string

// Asm is the text.
func (t text) Asm() string { return string(t) }

// allocate gives the functions for arm64 their registers.
func allocate(f *ir.File) error {
	for _, fn := range f.Functions() {
		fn.Nodes = coalesce(weave(fn.Nodes))
	}
	return pass.Concat(
		pass.FunctionPass(pass.LabelTarget),
		pass.FunctionPass(pass.CFG),
		pass.FunctionPass(pass.Liveness),
		pass.FunctionPass(pass.AllocateRegisters),
		pass.FunctionPass(pass.BindRegisters),
		pass.FunctionPass(pass.VerifyAllocation),
	).Execute(f)
}

// finish writes the instructions of the functions for arm64 in Go's syntax.
func finish(f *ir.File) error {
	for _, fn := range f.Functions() {
		for _, i := range fn.Instructions() {
			i.Opcode, i.Operands = arm64(i.Opcode, i.Operands)
		}
	}
	return pass.Func(pass.IncludeTextFlagHeader).Execute(f)
}

// Encodings of vector instructions that Go's assembler does not know: those of three
// registers, with Rm at bit 16, Rn at 5 and Rd at 0, and those of two. From "Arm
// Architecture Reference Manual for A-profile", C7.2.
var (
	threes = map[string]uint32{
		"FADD": 0x4e20d400, "FSUB": 0x4ea0d400, "FMUL": 0x6e20dc00, "FDIV": 0x6e20fc00, "FMAX": 0x4e20f400, "FMIN": 0x4ea0f400,
		"FCMGT": 0x6ea0e400, "FCMGE": 0x6e20e400, "FCMEQ": 0x4e20e400, "CMGT": 0x4ea03400,
	}
	twos = map[string]struct {
		code    uint32
		rd, rn  string // how the registers are divided
		operand string // after them
	}{
		"FSQRT": {0x6ea1f800, "4s", "4s", ""}, "FRINTN": {0x4e218800, "4s", "4s", ""}, "FCVTNS": {0x4e21a800, "4s", "4s", ""},
		"SCVTF": {0x4e21d800, "4s", "4s", ""}, "FABS": {0x4ea0f800, "4s", "4s", ""}, "NOT": {0x6e205800, "16b", "16b", ""},
		"FCVTL": {0x0e217800, "4s", "4h", ""}, "FCVTN": {0x0e216800, "4h", "4s", ""}, "SHLL": {0x2e613800, "4s", "4h", ", #16"},
		"XTN": {0x0e612800, "4h", "4s", ""},
	}
)

// Instructions of three registers that Go's assembler knows, and how they divide registers.
var known = map[string][2]string{
	"FMLA": {"VFMLA", "S4"}, "FMLS": {"VFMLS", "S4"}, "ADD int": {"VADD", "S4"}, "SUB int": {"VSUB", "S4"},
	"AND": {"VAND", "B16"}, "ORR": {"VORR", "B16"}, "EOR": {"VEOR", "B16"}, "BIT": {"VBIT", "B16"},
}

// doubleMark ends the names of instructions on elements of 8 bytes, where there is one on 4 too. sized are those that are not
// of threes.
const doubleMark = " double"

var sized = []string{"FSQRT", "FRINTN", "FABS", "FMLA", "FMLS", "ADD int", "SUB int", "SHL", "USHR", "DUP element 0"}

// arm64 returns an instruction as Go's assembler reads it.
func arm64(name string, ops []operand.Op) (string, []operand.Op) {
	name, double := strings.CutSuffix(name, doubleMark)
	divided := "S4"
	if double {
		divided = "D2"
	}
	if code, ok := threes[name]; ok {
		d, n, m := vectorIndex(ops[0]), vectorIndex(ops[1]), vectorIndex(ops[2])
		if double || len(ops) > 3 && ops[3] == operand.U64(64) { // the size of an element in bits
			return word(code|1<<22|m<<16|n<<5|d, "%s v%d.2d, v%d.2d, v%d.2d", strings.ToLower(name), d, n, m)
		}
		return word(code|m<<16|n<<5|d, "%s v%d.4s, v%d.4s, v%d.4s", strings.ToLower(name), d, n, m)
	}
	if two, ok := twos[name]; ok {
		d, n := vectorIndex(ops[0]), vectorIndex(ops[1])
		if double {
			return word(two.code|1<<22|n<<5|d, "%s v%d.2d, v%d.2d", strings.ToLower(name), d, n)
		}
		return word(two.code|n<<5|d, "%s v%d.%s, v%d.%s%s", strings.ToLower(name), d, two.rd, n, two.rn, two.operand)
	}
	if k, ok := known[name]; ok {
		by := k[1]
		if double {
			by = divided
		}
		return k[0], []operand.Op{lanes(ops[2], by), lanes(ops[1], by), lanes(ops[0], by)}
	}
	switch name {
	case "FMLA element", "FMUL element":
		return byElement(name, ops)
	case "SSHR": // ops[2] is the number of bits
		d, n, by := vectorIndex(ops[0]), vectorIndex(ops[1]), uint32(ops[2].(operand.U64))
		return word(0x4f000400|(64-by)<<16|n<<5|d, "sshr v%d.4s, v%d.4s, #%d", d, n, by)
	case "SHL":
		return "VSHL", []operand.Op{ops[2], lanes(ops[1], divided), lanes(ops[0], divided)}
	case "USHR":
		return "VUSHR", []operand.Op{ops[2], lanes(ops[1], divided), lanes(ops[0], divided)}
	case "MOV":
		return "VMOV", []operand.Op{lanes(ops[1], "B16"), lanes(ops[0], "B16")}
	case "EXT": // both halves change places
		return "VEXT", []operand.Op{text("$8"), lanes(ops[1], "B16"), lanes(ops[1], "B16"), lanes(ops[0], "B16")}
	case "REV64":
		return "VREV64", []operand.Op{lanes(ops[1], "S4"), lanes(ops[0], "S4")}
	case "DUP":
		return "VDUP", []operand.Op{plain(ops[1]), lanes(ops[0], "S4")}
	case "DUP element 0":
		return "VDUP", []operand.Op{text(vectorName(ops[1]) + "." + divided[:1] + "[0]"), lanes(ops[0], divided)}
	case "CBZ":
		return name, []operand.Op{plain(ops[1]), ops[0]}
	case "address":
		return "MOVD", []operand.Op{text("$" + ops[1].Asm()), plain(ops[0])}
	case "LD1 third": // into element 2
		return "VLD1", []operand.Op{plain(ops[1]), text(vectorName(ops[0]) + ".S[2]")}
	case "ST1 third":
		return "VST1", []operand.Op{text(vectorName(ops[0]) + ".S[2]"), plain(ops[1])}
	}
	for i := range ops { // Go's own names, in Go's order
		ops[i] = plain(ops[i])
	}
	return name, ops
}

// word returns an instruction by its encoding, with what it is as a comment.
func word(code uint32, format string, args ...any) (string, []operand.Op) {
	return "WORD", []operand.Op{text(fmt.Sprintf("$0x%08x // ", code) + fmt.Sprintf(format, args...))}
}

// byElement is the product of a vector and one element of another, for elements of 4 or 8
// bytes: ops are Rd, Rn, Rm, the element's index and its size in bits.
func byElement(name string, ops []operand.Op) (string, []operand.Op) {
	d, n, m := vectorIndex(ops[0]), vectorIndex(ops[1]), vectorIndex(ops[2])
	index, bits := uint32(ops[3].(operand.U64)), int(ops[4].(operand.U64))
	name, _, _ = strings.Cut(name, " ")
	code := map[string]uint32{"FMLA": 0x4f801000, "FMUL": 0x4f809000}[name] | m<<16 | n<<5 | d
	if bits == 64 {
		return word(code|1<<22|index<<11, "%s v%d.2d, v%d.2d, v%d.d[%d]", strings.ToLower(name), d, n, m, index)
	}
	return word(code|index&1<<21|index>>1<<11, "%s v%d.4s, v%d.4s, v%d.s[%d]", strings.ToLower(name), d, n, m, index)
}

// vectorIndex is the number of a vector register.
func vectorIndex(o operand.Op) uint32 {
	if v, ok := o.(armVector); ok {
		return uint32(v)
	}
	return uint32(o.(reg.VecPhysical).PhysicalIndex())
}

func vectorName(o operand.Op) string { return fmt.Sprintf("V%d", vectorIndex(o)) }

// lanes is a vector register divided into lanes.
func lanes(o operand.Op, by string) operand.Op { return text(vectorName(o) + "." + by) }

// plain is an operand of an instruction that is not a vector one.
func plain(o operand.Op) operand.Op {
	switch o := o.(type) {
	case armVector, reg.VecPhysical: // of which the lowest element counts
		return text(fmt.Sprintf("F%d", vectorIndex(o)))
	case reg.GPPhysical:
		return text(fmt.Sprintf("R%d", o.PhysicalIndex()))
	case operand.Mem:
		if o.Symbol.Name != "" {
			return o // a parameter or a constant
		}
		if o.Disp == 0 {
			return text("(" + plain(o.Base).Asm() + ")")
		}
		return text(fmt.Sprintf("%d(%s)", o.Disp, plain(o.Base).Asm()))
	}
	return o
}

// An armVector is a vector register by its number, for code that allocates none.
type armVector uint32

// Asm names the register.
func (v armVector) Asm() string { return vectorName(v) }

// instruct writes an instruction for arm64. It writes the registers outs and reads ins.
func instruct(c *build.Context, name string, outs, ins []operand.Op, ops ...operand.Op) {
	c.Instruction(&ir.Instruction{Opcode: name, Operands: ops, Inputs: ins, Outputs: outs})
}

// branch writes a branch, B or one that depends on flags or on ops. For avo the label comes first.
func branch(c *build.Context, name, label string, ops ...operand.Op) {
	c.Instruction(&ir.Instruction{Opcode: name, Operands: append([]operand.Op{operand.LabelRef(label)}, ops...), Inputs: ops, IsBranch: true,
		IsConditional: name != "B"})
}

// end returns from a function.
func end(c *build.Context) { c.Instruction(&ir.Instruction{Opcode: "RET", IsTerminal: true}) }

// coalesce takes out copies of a vector register whose source is not used any more: the
// source gets the name of the copy. Such copies are made for instructions that overwrite an
// operand.
func coalesce(nodes []ir.Node) []ir.Node {
	for i := 0; i < len(nodes); i++ {
		n, ok := nodes[i].(*ir.Instruction)
		if !ok || n.Opcode != "MOV" {
			continue
		}
		dst, src := n.Operands[0], n.Operands[1]
		if from, ok := mergeable(nodes, i, dst, src); ok {
			for _, n := range nodes[from:i] {
				rename(n.(*ir.Instruction), src, dst)
			}
			nodes = append(nodes[:i], nodes[i+1:]...)
			i--
		}
	}
	return nodes
}

// mergeable reports whether src may be named dst up to the copy nodes[at], and where src is
// first written. Between there and the copy, within one basic block, dst must not be in use,
// and src in use nowhere else.
func mergeable(nodes []ir.Node, at int, dst, src operand.Op) (from int, ok bool) {
	from = -1
	for i := at - 1; i >= 0; i-- {
		n, inBlock := nodes[i].(*ir.Instruction)
		if !inBlock || n.IsBranch || n.IsTerminal {
			break
		}
		if uses(n.Outputs, src) && !uses(n.Inputs, src) {
			from = i
			break
		}
	}
	if from < 0 || uses(nodes[from].(*ir.Instruction).Outputs, dst) {
		return 0, false
	}
	for i, n := range nodes {
		n, isInstruction := n.(*ir.Instruction)
		switch {
		case !isInstruction:
		case i < from || i > at:
			if uses(n.Operands, src) {
				return 0, false
			}
		case i > from && i < at:
			if uses(n.Operands, dst) {
				return 0, false
			}
		}
	}
	return from, true
}

func uses(ops []operand.Op, r operand.Op) bool {
	for _, o := range ops {
		if o == r {
			return true
		}
	}
	return false
}

func rename(n *ir.Instruction, from, to operand.Op) {
	for _, ops := range [][]operand.Op{n.Operands, n.Inputs, n.Outputs} {
		for i := range ops {
			if ops[i] == from {
				ops[i] = to
			}
		}
	}
}
