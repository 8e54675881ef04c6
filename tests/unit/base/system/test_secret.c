/* test_secret.c - memory for keys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/system/secret.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define MANY 2000 /* several slabs */

static bool is_zero(const uint8_t *bytes, size_t size)
{
	while (size && !bytes[size - 1])
		size--;
	return size == 0;
}

/* Whether the kernel leaves an address out of core dumps: the flag dd of its
 * mapping. */
static bool is_left_out(const void *address)
{
	FILE *maps = fopen("/proc/self/smaps", "r");
	bool is_inside = false, is = false;
	unsigned long start, end;
	char line[4096];

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			is_inside = (uintptr_t)address >= start &&
				    (uintptr_t)address < end;
		else if (is_inside && strncmp(line, "VmFlags:", 8) == 0)
			is = strstr(line, " dd") != NULL;
	}
	fclose(maps);
	return is;
}

static void secrets_are_in_no_core_dump(void **state)
{
	void *secret = reef_secret_create(32);

	assert_non_null(secret);
	assert_true(is_left_out(secret));
	assert_false(is_left_out(&secret));
	reef_secret_destroy(secret);
}

static void secrets_are_apart_and_wiped(void **state)
{
	static uint8_t *secrets[MANY];

	for (size_t round = 0; round < 2; round++) {
		for (size_t i = 0; i < MANY; i++) {
			secrets[i] = reef_secret_create(REEF_SECRET_MAX);
			assert_non_null(secrets[i]);
			assert_true(is_zero(secrets[i], REEF_SECRET_MAX));
			memset(secrets[i], (int)(i % 255) + 1, REEF_SECRET_MAX);
		}
		for (size_t i = 0; i < MANY; i++) {
			assert_int_equal(secrets[i][0], i % 255 + 1);
			assert_int_equal(secrets[i][REEF_SECRET_MAX - 1],
					 i % 255 + 1);
			reef_secret_destroy(secrets[i]);
			assert_true(is_zero(secrets[i], REEF_SECRET_MAX));
		}
	}
}

static void secrets_have_a_limit(void **state)
{
	assert_null(reef_secret_create(REEF_SECRET_MAX + 1));
	reef_secret_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(secrets_are_in_no_core_dump),
		cmocka_unit_test(secrets_are_apart_and_wiped),
		cmocka_unit_test(secrets_have_a_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
