/* The context switch: see context.h. void reef_context_jump(void **save_sp,
 * void *load_sp) saves what the System V ABI lets a caller rely on, and goes on
 * where load_sp was saved. The frame is `struct frame` of context.c.
 *
 * Measured (Zen, two fibers that yield to each other, ns per yield with the
 * scheduler's share of about 3): 4.4 without the control words, 6.3 as it
 * stands, 6.9 with fldcw each time, 7.9 with ldmxcsr only where mxcsr differs.
 * The last is slow because what stmxcsr stored cannot be forwarded to a load:
 * the comparison waits until the store has left the core. swapcontext on the
 * same machine: 235. The final ret is predicted as long as fibers park in the
 * same function; a jump instead would leave the return predictor one call
 * ahead, and every ret after it would miss. */
#if defined(__x86_64__) && !defined(REEF_CONTEXT_UCONTEXT)

	.text
	.globl	reef_context_jump
	.hidden	reef_context_jump
	.type	reef_context_jump, @function
	.balign	64
reef_context_jump:
	.cfi_startproc
	pushq	%rbp
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbp, 0
	pushq	%rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbx, 0
	pushq	%r12
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r12, 0
	pushq	%r13
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r13, 0
	pushq	%r14
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r14, 0
	pushq	%r15
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r15, 0
	subq	$8, %rsp
	.cfi_adjust_cfa_offset 8
	stmxcsr	(%rsp)
	fnstcw	4(%rsp)
	movzwl	4(%rsp), %ecx
	movq	%rsp, (%rdi)
	/* From here on another stack; its frame has the same shape, so what
	 * the unwinder was told stays true. */
	movq	%rsi, %rsp
	ldmxcsr	(%rsp)
	cmpw	4(%rsp), %cx
	jne	2f
1:
	.cfi_remember_state
	addq	$8, %rsp
	.cfi_adjust_cfa_offset -8
	popq	%r15
	.cfi_adjust_cfa_offset -8
	.cfi_restore %r15
	popq	%r14
	.cfi_adjust_cfa_offset -8
	.cfi_restore %r14
	popq	%r13
	.cfi_adjust_cfa_offset -8
	.cfi_restore %r13
	popq	%r12
	.cfi_adjust_cfa_offset -8
	.cfi_restore %r12
	popq	%rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rbx
	popq	%rbp
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rbp
	ret
2:
	.cfi_restore_state
	fldcw	4(%rsp)
	jmp	1b
	.cfi_endproc
	.size	reef_context_jump, . - reef_context_jump

/* Where a new context begins: rbx is its function, r12 the argument. */
	.globl	reef_context_start
	.hidden	reef_context_start
	.type	reef_context_start, @function
	.balign	16
reef_context_start:
	.cfi_startproc
	/* The outermost frame: there is no caller. */
	.cfi_undefined %rip
	xorl	%ebp, %ebp
	movq	%r12, %rdi
	call	*%rbx
	ud2
	.cfi_endproc
	.size	reef_context_start, . - reef_context_start

/* An indirect jump lands on a function only, as in what the compiler makes; both
 * functions here are reached otherwise. There is no word about a shadow stack:
 * a switch leaves by a return that none knows. */
	.section .note.gnu.property, "a"
	.balign	8
	.long	4, 16, 5
	.asciz	"GNU"
	.long	0xc0000002, 4, 1, 0

#endif
	.section .note.GNU-stack, "", @progbits
