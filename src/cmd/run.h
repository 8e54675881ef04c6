/* run.h - a command of this program, run to its end by another of its
 * processes.
 *
 * Thread: any. */
#ifndef REEF_CMD_RUN_H
#define REEF_CMD_RUN_H

#include <stddef.h>
#include <stdint.h>

#define RUN_WORDS_MAX 72u

/* Run this program with these words, to NULL; what it printed, errors too, is
 * *out, which the caller frees. It is killed if it takes longer than that, or
 * if we end. The exit status; 128: a signal ended it.  -ETIMEDOUT.  -EMSGSIZE:
 * it printed more than 128 KiB.  -ENOMEM and such: it was not started. */
int run_and_read(const char *const *words, uint64_t timeout_ns, char **out,
		 size_t *size);

#endif
