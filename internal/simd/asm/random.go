package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// randomKernels are the functions of package philox's numbers.
var randomKernels = []struct {
	name, signature, doc string
	emit                 func(c *build.Context)
}{
	{"philoxVec", "func(wide bool, dst *uint32, blocks int, first, stream uint64, keys *uint64)",
		"writes the 4 words of each of blocks > 0 blocks, a multiple of 8 and if wide of 16; keys are the 20 of the rounds.", philox},
	{"normalsVec", "func(dst *float32, words *uint32, n int, mean, std float64, tail *float64)",
		"maps n > 0 words, a multiple of 8, to normal numbers; tail has 32 octaves of each of 9 coefficients.", normals},
}

// randoms emits them.
func randoms(c *build.Context) {
	for _, k := range randomKernels {
		rowFunction(c, k.name, k.signature, k.doc)
		k.emit(c)
	}
}

// quadwords returns constants of 64 bits in memory.
func quadwords(c *build.Context, name string, values ...uint64) operand.Mem {
	m := c.StaticGlobal(name)
	c.DataAttributes(attr.RODATA | attr.NOPTR)
	for i, v := range values {
		c.AddDatum(8*i, operand.U64(v))
	}
	return m
}

// philox writes the blocks of philox.Key.Block, two vectors of them at a time, so that one is multiplied while the other waits. A
// lane of 64 bits has one of the four words of a block in its lower half; what is in the upper half is not read.
//
// The lanes have the blocks in an order in which the two halves of an interleaving are consecutive blocks.
func philox(c *build.Context) {
	wideOrder := quadwords(c, "philoxOrder8", 0, 4, 1, 5, 2, 6, 3, 7)
	order := quadwords(c, "philoxOrder4", 0, 2, 1, 3)
	vectors := quadwords(c, "philoxLanes", 8, 4)
	multipliers := quadwords(c, "philoxMultipliers", 0xD2511F53, 0xCD9E8D57)
	wide := c.GP8()
	c.Load(c.Param("wide"), wide)
	dst, blocks, keys := c.GP64(), c.GP64(), c.GP64()
	load(c, "dst", dst, "blocks", blocks, "keys", keys)
	param := func(name string) operand.Mem {
		p, err := c.Param(name).Resolve()
		if err != nil {
			panic(err)
		}
		return p.Addr
	}
	c.TESTB(wide, wide)
	c.JE(operand.LabelRef("narrow"))
	for _, w := range []bool{true, false} {
		lanes, loop := 8, "wide8"
		if !w {
			lanes, loop = 4, "wide4"
			c.Label("narrow")
		}
		vector := func() reg.VecVirtual {
			if w {
				return c.ZMM()
			}
			return c.YMM()
		}
		fill := func(m operand.Mem) reg.VecVirtual {
			v := vector()
			c.VPBROADCASTQ(m, v)
			return v
		}
		counter := fill(param("first"))
		if w {
			c.VPADDQ(wideOrder, counter, counter)
		} else {
			c.VPADDQ(order, counter, counter)
		}
		m0, m1 := fill(multipliers), fill(multipliers.Offset(8))
		c.Label(loop)
		var g [2][4]reg.VecVirtual
		for i := range g {
			for j := range g[i] {
				g[i][j] = vector()
			}
			if w {
				c.VMOVDQA64(counter, g[i][0])
				c.VPADDQ_BCST(vectors, counter, counter)
			} else {
				c.VMOVDQA(counter, g[i][0])
				step := fill(vectors.Offset(8))
				c.VPADDQ(step, counter, counter)
			}
			c.VPSRLQ(operand.Imm(32), g[i][0], g[i][1])
			c.VPBROADCASTQ(param("stream"), g[i][2])
			c.VPSRLQ(operand.Imm(32), g[i][2], g[i][3])
		}
		for round := range 10 {
			var k [2]operand.Mem
			for i := range k {
				k[i] = operand.Mem{Base: keys, Disp: 16*round + 8*i}
			}
			for i := range g {
				b := &g[i]
				p0, p1 := vector(), vector()
				c.VPMULUDQ(m0, b[0], p0)
				c.VPMULUDQ(m1, b[2], p1)
				for j, p := range []reg.VecVirtual{p1, p0} {
					high, to := vector(), b[2*j+1]
					c.VPSRLQ(operand.Imm(32), p, high)
					if w {
						c.VPTERNLOGQ_BCST(operand.Imm(0x96), k[j], high, to) // the exclusive or of three
					} else {
						c.VPXOR(high, to, to)
						c.VPXOR(fill(k[j]), to, to)
					}
				}
				*b = [4]reg.VecVirtual{b[1], p1, b[3], p0}
			}
		}
		for i := range g {
			pairs := [2]reg.VecVirtual{g[i][0], g[i][2]}
			for j := range pairs { // of two words: a lane of 64 bits
				high := vector()
				c.VPSLLQ(operand.Imm(32), g[i][2*j+1], high)
				if w {
					c.VPSLLQ(operand.Imm(32), pairs[j], pairs[j])
					c.VPSRLQ(operand.Imm(32), pairs[j], pairs[j])
					c.VPORQ(high, pairs[j], pairs[j])
				} else {
					c.VPBLENDD(operand.Imm(0xaa), high, pairs[j], pairs[j])
				}
			}
			low, high := vector(), vector()
			c.VPUNPCKLQDQ(pairs[1], pairs[0], low)
			c.VPUNPCKHQDQ(pairs[1], pairs[0], high)
			for j, v := range []reg.VecVirtual{low, high} {
				to := operand.Mem{Base: dst, Disp: (2*i + j) * lanes * 8}
				if w {
					c.VMOVDQU64(v, to)
				} else {
					c.VMOVDQU(v, to)
				}
			}
		}
		c.ADDQ(operand.U32(uint32(2*lanes*16)), dst)
		c.SUBQ(operand.Imm(uint64(2*lanes)), blocks)
		c.JG(operand.LabelRef(loop))
		c.VZEROUPPER()
		c.RET()
	}
}

// normals is philox.Normal of 8 words at a time, with AVX-512. The coefficients of the upper 16 octaves lie in registers; those of the
// others, of which one in 65536 words is, are read when a word needs them.
func normals(c *build.Context) {
	const powers = 9
	fractions := quadwords(c, "normalsMiddle", 0x3ff8000000000000) // 1.5
	one, sign, upper := quadwords(c, "normalsOne", 1), quadwords(c, "normalsSign", 1<<63), quadwords(c, "normalsUpper", 16)
	dst, words, n, tail := c.GP64(), c.GP64(), c.GP64(), c.GP64()
	load(c, "dst", dst, "words", words, "n", n, "tail", tail)
	octaves := func(power, first int) operand.Mem { return operand.Mem{Base: tail, Disp: 8 * (32*power + first)} }
	var table [powers][2]reg.VecVirtual
	for i := range table {
		for j := range table[i] {
			table[i][j] = c.ZMM()
			c.VMOVUPD(octaves(i, 16+8*j), table[i][j])
		}
	}
	scalar := func(name string) reg.VecVirtual {
		p, err := c.Param(name).Resolve()
		if err != nil {
			panic(err)
		}
		v := c.ZMM()
		c.VBROADCASTSD(p.Addr, v)
		return v
	}
	mean, std := scalar("mean"), scalar("std")
	bits, wide, x, octave, t := c.YMM(), c.ZMM(), c.ZMM(), c.ZMM(), c.ZMM()
	rare, found := c.K(), c.GP32()
	c.Label("vector")
	c.VPMOVZXDQ(operand.Mem{Base: words}, wide)
	c.VPSLLQ(operand.Imm(32), wide, wide) // the word, whose top bit is the sign
	c.VPSLLD(operand.Imm(1), operand.Mem{Base: words}, bits)
	c.VPORD_BCST(one, bits, bits)
	c.VCVTUDQ2PD(bits, x)
	c.VPSRLQ(operand.Imm(52), x, octave)
	c.VPADDQ_BCST(one, octave, octave) // its lower 5 bits are those of the exponent, whose bias is 1023
	c.VGETMANTPD(operand.Imm(0), x, t)
	c.VSUBPD_BCST(fractions, t, t)
	c.VPTESTNMQ_BCST(upper, octave, rare)
	c.KMOVW(rare, found)
	z := c.ZMM()
	polynomial := func(coefficient func(power int, dst reg.VecVirtual)) {
		coefficient(0, z)
		for i := 1; i < powers; i++ {
			next := c.ZMM()
			coefficient(i, next)
			c.VFMADD213PD(next, t, z)
		}
	}
	pick := func(power int, dst reg.VecVirtual) {
		c.VMOVDQA64(octave, dst)
		c.VPERMI2PD(table[power][1], table[power][0], dst)
	}
	c.TESTL(found, found)
	c.JNE(operand.LabelRef("rare"))
	polynomial(pick)
	c.Label("finish")
	c.VPTERNLOGQ_BCST(operand.Imm(0x78), sign, wide, z) // z with the sign
	c.VFMADD213PD(mean, std, z)
	c.VCVTPD2PS(z, bits)
	c.VMOVUPS(bits, operand.Mem{Base: dst})
	c.ADDQ(operand.Imm(32), words)
	c.ADDQ(operand.Imm(32), dst)
	c.SUBQ(operand.Imm(8), n)
	c.JG(operand.LabelRef("vector"))
	c.VZEROUPPER()
	c.RET()
	c.Label("rare")
	polynomial(func(power int, dst reg.VecVirtual) {
		low := c.ZMM()
		pick(power, dst)
		c.VMOVDQA64(octave, low)
		c.VMOVUPD(octaves(power, 0), x)
		c.VPERMI2PD(octaves(power, 8), x, low)
		c.VBLENDMPD(low, dst, rare, dst)
	})
	c.JMP(operand.LabelRef("finish"))
}
