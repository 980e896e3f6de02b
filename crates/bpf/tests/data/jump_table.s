# A `switch` as clang 22 compiles it at -mcpu=v4, with a load of its table's address.
	.section xdp,"ax",@progbits
	.globl	choose
	.type	choose,@function
choose:
	r1 = .Ltable ll
	r0 = 2
	exit
	.size	choose, .-choose

	.section .jumptables,"",@progbits
.Ltable:
	.quad	16
	.quad	24
