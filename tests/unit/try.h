/* try.h - for threads, where nothing is asserted: return what went wrong, with
 * a line on it. */
#ifndef REEF_TESTS_TRY_H
#define REEF_TESTS_TRY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <reef/error.h>

#define TRY(call)                                                              \
	do {                                                                   \
		int try_rc = (call);                                           \
		if (try_rc) {                                                  \
			print_message("%s:%d: %s: %s\n", __FILE__, __LINE__,   \
				      #call, reef_error_name(try_rc));         \
			return try_rc;                                         \
		}                                                              \
	} while (0)

#endif
