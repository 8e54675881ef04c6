/* process.h - processes of this machine, known again after our own restart.
 *
 * (1) A number names a process only together with the time of its start, and
 *     only where both were read: in one boot of a machine, one pid namespace
 *     and one time namespace. These are its place. A pid namespace that ends
 *     takes all its processes along, so a later one that is given the same
 *     number is no danger.
 * (2) A process is said to have ended only if that is certain: the place is
 *     ours, and the kernel knows no process of that number, or knows it as
 *     ended, or as one that was started at another time. What cannot be found
 *     out (another place, no /proc, a file that may not be read) counts as
 *     living.
 *
 * Thread: any. */
#ifndef REEF_BASE_PROCESS_H
#define REEF_BASE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

struct reef_process {
	uint32_t pid;	  /* as this process numbers it; 0: not known */
	uint64_t started; /* in the kernel's ticks since the boot */
	uint64_t place;	  /* a hash of (1) */
};

/* Find what tells this process from all others.  -ESRCH: there is none of that
 * number.  -ENOTSUP: /proc is not there, or of another namespace.  Else: why it
 * cannot be read. */
int reef_process_find(uint32_t pid, struct reef_process *out);

/* True if it has certainly ended: (2). */
bool reef_process_has_ended(const struct reef_process *process);

/* What this process has used: its time on the processor; bytes of memory now,
 * 0: not known. */
void reef_process_use(uint64_t *cpu_ns, uint64_t *resident);

#endif
