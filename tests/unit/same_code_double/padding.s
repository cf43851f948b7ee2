# SPDX-License-Identifier: Apache-2.0
# No function, so it has no entry in .eh_frame: it moves what is linked after it.
	.text
	.skip 4096, 0x90
	.data
	.skip 8192, 1
	.section .rodata, "a"
	.skip 640, 1
	.section .note.GNU-stack, "", @progbits
