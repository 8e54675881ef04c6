/* filter.c - run a part of a test program: `test_store 'store_crash*'`, or
 * REEF_TEST_FILTER='store_crash*'. Linked into every unit test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

/* glibc hands constructors main's arguments; elsewhere the variable works. */
__attribute__((constructor)) static void set_filter(int argc, char **argv)
{
	const char *filter = getenv("REEF_TEST_FILTER");

#ifdef __GLIBC__
	if (argc == 2)
		filter = argv[1];
#else
	(void)argc;
	(void)argv;
#endif
	if (filter)
		cmocka_set_test_filter(filter);
}
