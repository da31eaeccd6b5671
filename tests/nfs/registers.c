/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Loaded into user-mode Linux (LD_PRELOAD), whose kernel is older than some processors: it keeps
 * as much of a process's registers as it knows of, up to AVX-512, and the host takes only all of
 * them back. What it does not know (AMX) stays as the process has it.
 */
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXTENDED_STATE 0x202 /* NT_X86_XSTATE of elf.h */

static long set_extended_state(pid_t process, const struct iovec *known)
{
	static _Alignas(64) char state[65536];
	struct iovec all = { .iov_base = state, .iov_len = sizeof(state) };

	if (syscall(SYS_ptrace, PTRACE_GETREGSET, process, EXTENDED_STATE, &all))
		return -1;
	memcpy(state, known->iov_base, known->iov_len < all.iov_len ? known->iov_len : all.iov_len);
	return syscall(SYS_ptrace, PTRACE_SETREGSET, process, EXTENDED_STATE, &all);
}

/* What the kernel writes to an address is what the library's function returns. */
static long peek(int request, pid_t process, void *address)
{
	long word = 0;
	long rc = syscall(SYS_ptrace, request, process, address, &word);

	return rc < 0 ? rc : word;
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list arguments;
	pid_t process;
	void *address, *data;

	va_start(arguments, request);
	process = va_arg(arguments, pid_t);
	address = va_arg(arguments, void *);
	data = va_arg(arguments, void *);
	va_end(arguments);
	switch (request) {
	case PTRACE_PEEKTEXT:
	case PTRACE_PEEKDATA:
	case PTRACE_PEEKUSER:
		return peek(request, process, address);
	case PTRACE_SETREGSET:
		if (address == (void *)EXTENDED_STATE)
			return set_extended_state(process, data);
		break;
	default:
		break;
	}
	return syscall(SYS_ptrace, request, process, address, data);
}
