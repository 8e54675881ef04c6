/* test_checksum.c - both versions of CRC32C against each other and against
 * published values. */
#include "base/checksum.h"
#include "base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bit by bit, from the definition. */
static uint32_t slow_crc(uint32_t crc, const uint8_t *bytes, size_t size)
{
	int bit;

	for (crc = ~crc; size > 0; bytes++, size--) {
		crc ^= *bytes;
		for (bit = 0; bit < 8; bit++)
			crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
	}
	return ~crc;
}

static void expect_both(const void *bytes, size_t size, uint32_t crc)
{
	assert_int_equal(reef_crc32c(0, bytes, size), crc);
	assert_int_equal(reef_crc32c_software(0, bytes, size), crc);
}

/* RFC 3720, appendix B.4. */
static void checksum_published_values_match(void **state)
{
	uint8_t bytes[32];
	int i;

	expect_both("", 0, 0);
	expect_both("123456789", 9, 0xe3069283);
	memset(bytes, 0, sizeof(bytes));
	expect_both(bytes, sizeof(bytes), 0x8a9136aa);
	memset(bytes, 0xff, sizeof(bytes));
	expect_both(bytes, sizeof(bytes), 0x62a8ab43);
	for (i = 0; i < 32; i++)
		bytes[i] = (uint8_t)i;
	expect_both(bytes, sizeof(bytes), 0x46dd794e);
	for (i = 0; i < 32; i++)
		bytes[i] = (uint8_t)(31 - i);
	expect_both(bytes, sizeof(bytes), 0x113fdb5c);
}

/* Every length around the borders of the streams, every alignment. */
static void checksum_hardware_and_software_agree(void **state)
{
	static const size_t around[] = {0,    8,    64,	  256,	768,  1024,
					2048, 2304, 6144, 6912, 20000};
	struct reef_random random;
	size_t i, size, align;
	uint8_t *bytes;
	uint32_t crc;

	reef_random_init(&random, 1);
	bytes = malloc(20032);
	assert_non_null(bytes);
	reef_random_fill(&random, bytes, 20032);
	for (i = 0; i < sizeof(around) / sizeof(around[0]); i++) {
		for (size = around[i] < 9 ? 0 : around[i] - 9;
		     size < around[i] + 9; size++) {
			align = size & 7;
			crc = slow_crc(7, bytes + align, size);
			assert_int_equal(reef_crc32c(7, bytes + align, size),
					 crc);
			assert_int_equal(
				reef_crc32c_software(7, bytes + align, size),
				crc);
			assert_int_equal(
				reef_crc32c_narrow(7, bytes + align, size),
				crc);
		}
	}
	free(bytes);
}

/* What the kernel says of the processor must have been taken up. */
static void checksum_hardware_present_is_used(void **state)
{
	FILE *info = fopen("/proc/cpuinfo", "r");
	bool found = false;
	char line[8192];

	if (!info)
		skip();
	while (!found && fgets(line, sizeof(line), info))
		found = (strncmp(line, "flags", 5) == 0 &&
			 strstr(line, " sse4_2")) ||
			(strncmp(line, "Features", 8) == 0 &&
			 strstr(line, " crc32"));
	fclose(info);
	assert_int_equal(reef_crc32c_is_hardware(), found);
}

static void checksum_continued_equals_whole(void **state)
{
	struct reef_random random;
	uint8_t bytes[9000];
	uint32_t whole, crc;
	size_t cut;
	int round;

	reef_random_init(&random, 2);
	reef_random_fill(&random, bytes, sizeof(bytes));
	whole = reef_crc32c(0, bytes, sizeof(bytes));
	for (round = 0; round < 100; round++) {
		cut = reef_random_below(&random, sizeof(bytes) + 1);
		crc = reef_crc32c(0, bytes, cut);
		crc = reef_crc32c(crc, bytes + cut, sizeof(bytes) - cut);
		assert_int_equal(crc, whole);
	}
}

static void checksum_joined_equals_whole(void **state)
{
	struct reef_random random;
	uint8_t bytes[9000];
	uint32_t whole, first, second;
	size_t cut;
	int round;

	reef_random_init(&random, 3);
	reef_random_fill(&random, bytes, sizeof(bytes));
	whole = reef_crc32c(0, bytes, sizeof(bytes));
	for (round = 0; round < 100; round++) {
		cut = round < 2 ? round * sizeof(bytes)
				: reef_random_below(&random, sizeof(bytes) + 1);
		first = reef_crc32c(0, bytes, cut);
		second = reef_crc32c(0, bytes + cut, sizeof(bytes) - cut);
		assert_int_equal(
			reef_crc32c_join(first, second, sizeof(bytes) - cut),
			whole);
	}
}

static void checksum_any_flipped_bit_shows(void **state)
{
	uint8_t bytes[64] = {1, 2, 3};
	uint32_t crc = reef_crc32c(0, bytes, sizeof(bytes));
	int bit;

	for (bit = 0; bit < 64 * 8; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_not_equal(reef_crc32c(0, bytes, sizeof(bytes)), crc);
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

/* The number is part of formats: it must not change with the library. */
static void checksum_hash_is_xxh3(void **state)
{
	assert_true(reef_hash("", 0, 0) == 0x2d06800538d394c2);
	assert_true(reef_hash("a", 1, 0) != reef_hash("a", 1, 1));
	assert_true(reef_hash("a", 1, 0) != reef_hash("b", 1, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(checksum_published_values_match),
		cmocka_unit_test(checksum_hardware_and_software_agree),
		cmocka_unit_test(checksum_hardware_present_is_used),
		cmocka_unit_test(checksum_continued_equals_whole),
		cmocka_unit_test(checksum_joined_equals_whole),
		cmocka_unit_test(checksum_any_flipped_bit_shows),
		cmocka_unit_test(checksum_hash_is_xxh3),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
