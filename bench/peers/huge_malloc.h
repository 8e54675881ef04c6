/* huge_malloc.h - malloc in huge pages, for peers in the same process.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_PEERS_HUGE_MALLOC_H
#define REEF_BENCH_PEERS_HUGE_MALLOC_H

#include <malloc.h>
#include <stdlib.h>
#include <unistd.h>

/* Bytes that malloc has given. */
static inline double huge_malloc_bytes(void)
{
	struct mallinfo2 info = mallinfo2();

	return (double)(info.uordblks + info.hblkhd);
}

/* Run the program again with the setting that glibc reads before main. */
static inline void huge_malloc_ask(char **argv)
{
	static const char name[] = "GLIBC_TUNABLES";

	if (getenv(name))
		return;
	setenv(name, "glibc.malloc.hugetlb=1", 1);
	execv("/proc/self/exe", argv); /* or without */
}

#endif
