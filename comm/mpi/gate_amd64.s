//go:build linux && !nolibs

#include "textflag.h"

// The fields of gate and gateCall, and of request.
#define n        0
#define made     8
#define first   16
#define count   24
#define done    32
#define looks   40
#define test    48
#define status  56
#define code    64
#define list    72
#define callsize 112
#define flag     8
#define requestsize 16

GLOBL ·throughABI0(SB), NOPTR|RODATA, $8
DATA ·throughABI0(SB)/8, $through(SB)

// int through(gate *g), by the C ABI of the platform. Arguments beyond the sixth
// of what it calls are at the bottom of the frame, whose size is a multiple of 16.
TEXT through(SB), NOSPLIT, $64
	MOVQ BX, 32(SP)
	MOVQ R12, 40(SP)
	MOVQ R13, 48(SP)
	MOVQ DI, BX
	LEAQ list(BX), R12

next:
	MOVQ made(BX), AX
	CMPQ AX, n(BX)
	JGE  look
	MOVQ 56(R12), AX
	MOVQ AX, 0(SP)
	MOVQ 64(R12), AX
	MOVQ AX, 8(SP)
	MOVQ 72(R12), AX
	MOVQ AX, 16(SP)
	MOVQ 80(R12), AX
	MOVQ AX, 24(SP)
	MOVQ 8(R12), DI
	MOVQ 16(R12), SI
	MOVQ 24(R12), DX
	MOVQ 32(R12), CX
	MOVQ 40(R12), R8
	MOVQ 48(R12), R9
	MOVQ 0(R12), R10
	XORL AX, AX
	CALL R10
	TESTL AX, AX
	JNE  failed
	INCQ made(BX)
	ADDQ $callsize, R12
	JMP  next

look:
	MOVQ done(BX), R13
	SHLQ $4, R13
	ADDQ first(BX), R13

again:
	MOVQ done(BX), AX
	CMPQ AX, count(BX)
	JGE  out
	CMPQ looks(BX), $0
	JEQ  out
	MOVQ R13, DI
	LEAQ flag(R13), SI
	MOVQ status(BX), DX
	MOVQ test(BX), R10
	XORL AX, AX
	CALL R10
	TESTL AX, AX
	JNE  failed
	CMPL flag(R13), $0
	JEQ  vain
	INCQ done(BX)
	ADDQ $requestsize, R13
	JMP  again

vain:
	DECQ looks(BX)
	JMP  again

failed:
	MOVL AX, AX
	MOVQ AX, code(BX)

out:
	MOVQ 32(SP), BX
	MOVQ 40(SP), R12
	MOVQ 48(SP), R13
	XORL AX, AX
	RET

// func ticks() int64
TEXT ·ticks(SB), NOSPLIT, $0-8
	RDTSC
	SHLQ $32, DX
	ORQ  DX, AX
	MOVQ AX, ret+0(FP)
	RET
