/* test_member.c - numbers of the participants of a process, and the words that
 * name them. */
#include "sync/member.h"

#include "sync/word.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include <cmocka.h>

static void sync_member_numbers_are_each_once(void **state)
{
	bool seen[SYNC_MEMBERS_MAX + 1] = {false};
	uint16_t member, other;
	uint32_t i;

	for (i = 0; i < SYNC_MEMBERS_MAX; i++) {
		assert_int_equal(sync_member_take(7, 0x1000, &member), 0);
		assert_true(member >= 1 && member <= SYNC_MEMBERS_MAX);
		assert_false(seen[member]);
		seen[member] = true;
	}
	assert_int_equal(sync_member_take(7, 0x1000, &member), -ENOSPC);
	/* Others have their own. */
	assert_int_equal(sync_member_take(8, 0x1000, &other), 0);
	assert_int_equal(other, 1);
	assert_int_equal(sync_member_take(7, 0x2000, &other), 0);
	assert_int_equal(other, 1);
	sync_member_give(8, 0x1000, 1);
	sync_member_give(7, 0x2000, 1);
	sync_member_give(7, 0x1000, 500);
	assert_int_equal(sync_member_take(7, 0x1000, &member), 0);
	assert_int_equal(member, 500);
	for (i = 1; i <= SYNC_MEMBERS_MAX; i++)
		sync_member_give(7, 0x1000, (uint16_t)i);
	assert_int_equal(sync_member_take(7, 0x1000, &member), 0);
	assert_int_equal(member, 1);
	sync_member_give(7, 0x1000, 1);
}

static void *take_and_give(void *arg)
{
	_Atomic uint32_t *owners = arg;
	uint32_t i;

	for (i = 0; i < 20000; i++) {
		uint16_t member;

		if (sync_member_take(9, 0x3000, &member))
			return arg;
		if (owners[member]++)
			return arg;
		owners[member]--;
		sync_member_give(9, 0x3000, member);
	}
	return NULL;
}

static void sync_member_threads_have_different_ones(void **state)
{
	static _Atomic uint32_t owners[SYNC_MEMBERS_MAX + 1];
	pthread_t threads[4];
	void *failed;
	int i;

	for (i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL,
						take_and_give, owners),
				 0);
	for (i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(threads[i], &failed), 0);
		assert_null(failed);
	}
}

static void sync_word_packs_what_it_unpacks(void **state)
{
	struct sync_word word = {0xfffe0001, 1023, 16383, 0xa5}, again;

	again = sync_word_unpack(sync_word_pack(word));
	assert_memory_equal(&word.session, &again.session, 4);
	assert_int_equal(again.member, 1023);
	assert_int_equal(again.ticket, 16383);
	assert_int_equal(again.flags, 0xa5);
	assert_int_equal(sync_ticket_distance(16383, 2), 3);
	assert_int_equal(sync_ticket_distance(2, 16383), -3);
	assert_int_equal(sync_ticket_distance(5, 5), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sync_member_numbers_are_each_once),
		cmocka_unit_test(sync_member_threads_have_different_ones),
		cmocka_unit_test(sync_word_packs_what_it_unpacks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
