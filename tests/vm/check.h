/* check.h - checks that end a test in the machine, and say why.
 *
 * Thread: any. */
#ifndef REEF_TESTS_VM_CHECK_H
#define REEF_TESTS_VM_CHECK_H

#include <stdio.h>
#include <unistd.h>

_Noreturn static inline void die(const char *file, int line, const char *text,
				 long long a, long long b)
{
	printf("%s:%d: not so: %s (it is %lld, wanted %lld)\n", file, line,
	       text, a, b);
	fflush(stdout);
	_exit(1);
}

#define CHECK(condition)                                                       \
	do {                                                                   \
		if (!(condition))                                              \
			die(__FILE__, __LINE__, #condition, 0, 0);             \
	} while (0)
#define CHECK_EQ(a, b)                                                         \
	do {                                                                   \
		long long a_ = (long long)(a), b_ = (long long)(b);            \
		if (a_ != b_)                                                  \
			die(__FILE__, __LINE__, #a " == " #b, a_, b_);         \
	} while (0)

#endif
