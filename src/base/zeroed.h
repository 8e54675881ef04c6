/* zeroed.h - small objects, all zero, that come and go all the time.
 *
 * glibc's calloc goes past the cache that malloc and free have for each thread:
 * an object of calloc costs some 500 instructions until it is free again, one
 * of malloc 100. Where that does not count calloc is what to take.
 *
 * Thread: any. */
#ifndef REEF_BASE_ZEROED_H
#define REEF_BASE_ZEROED_H

#include <stdlib.h>
#include <string.h>

/* Zero some hundred bytes. Of a memset whose size it knows the compiler makes a
 * `rep stos`, which takes some 30 cycles to begin; the library's does not. */
static inline void reef_zero(void *object, size_t size)
{
	__asm__("" : "+r"(size));
	memset(object, 0, size);
}

/* For free(); NULL: there is no memory. */
static inline void *reef_zeroed(size_t size)
{
	void *object = malloc(size);

	if (!object)
		return NULL;
	/* Else the compiler makes a calloc of the two. */
	__asm__("" : "+r"(object));
	return memset(object, 0, size);
}

#endif
