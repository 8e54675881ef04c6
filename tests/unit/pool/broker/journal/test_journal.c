/* test_journal.c - what a journal gives back, refuses, and whom it wakes. */
#include "base/checksum.h"
#include "base/log.h"
#include "base/random.h"
#include "fixture/runtime.h"
#include "fixture/store_wrapper.h"
#include "pool/broker/journal/format.h"
#include "pool/broker/journal/journal.h"
#include "wire/bytes.h"

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* What an open reads, as text: "snapshot|1:one|2:two". */
struct found {
	char text[4096];
	int refuse; /* what the reader answers to records */
};

static int note_snapshot(void *context, const void *bytes, size_t size)
{
	struct found *found = context;

	snprintf(found->text, sizeof(found->text), "%.*s", (int)size,
		 (const char *)bytes);
	return 0;
}

static int note_record(void *context, uint64_t sequence, uint16_t type,
		       const void *bytes, size_t size)
{
	struct found *found = context;
	size_t at = strlen(found->text);

	snprintf(found->text + at, sizeof(found->text) - at, "|%u:%.*s", type,
		 (int)size, (const char *)bytes);
	return found->refuse;
}

struct fixture {
	struct reef_random random;
	struct reef_store *disk;
	struct wrapper wrapper;
	struct reef_journal *journal;
	struct found found;
	char log[256]; /* the last line of it */
};

static struct fixture the;

static void note_log(void *context, enum reef_log_level level, const char *area,
		     const char *text)
{
	snprintf(the.log, sizeof(the.log), "%s", text);
}

static int set_up(void **state)
{
	memset(&the, 0, sizeof(the));
	reef_random_init(&the.random, 7);
	if (reef_store_open_memory(&the.random, &the.disk))
		return -1;
	wrapper_init(&the.wrapper, the.disk);
	reef_log_set(note_log, NULL, REEF_LOG_WARNING);
	return 0;
}

static int tear_down(void **state)
{
	reef_log_set(NULL, NULL, REEF_LOG_ERROR);
	reef_journal_close(the.journal);
	reef_store_destroy(the.disk);
	return 0;
}

static int try_open(struct reef_sched *sched,
		    const struct reef_journal_options *options)
{
	struct reef_journal_reader reader = {note_snapshot, note_record,
					     &the.found};

	the.found.text[0] = 0;
	return reef_journal_open(&the.wrapper.base, sched, options, &reader,
				 &the.journal);
}

static const struct reef_journal_options plain = {.sync_inline = true,
						  .salt = 42};

static void open_plain(void)
{
	assert_int_equal(try_open(NULL, &plain), 0);
}

static void close_journal(void)
{
	reef_journal_close(the.journal);
	the.journal = NULL;
}

static uint64_t append(uint16_t type, const char *text)
{
	uint64_t sequence = 0;

	assert_int_equal(reef_journal_append(the.journal, type, text,
					     strlen(text), &sequence),
			 0);
	return sequence;
}

static void keep(uint16_t type, const char *text)
{
	assert_int_equal(reef_journal_wait(the.journal, append(type, text)), 0);
}

static struct reef_journal_status status(void)
{
	struct reef_journal_status out;

	reef_journal_status(the.journal, &out);
	return out;
}

static void snapshot(const char *text)
{
	assert_int_equal(reef_journal_snapshot(the.journal, text, strlen(text)),
			 0);
}

/* --- what comes back --- */

static void journal_new_is_empty(void **state)
{
	open_plain();
	assert_string_equal(the.found.text, "");
	assert_int_equal(status().appended, 0);
	assert_int_equal(status().segments, 1);
	assert_int_equal(reef_journal_snapshot(the.journal, "x", 1), -EINVAL);
	close_journal();
	open_plain();
	assert_string_equal(the.found.text, "");
	assert_int_equal(status().segments, 1);
}

static void journal_records_come_back_in_order(void **state)
{
	open_plain();
	assert_int_equal(append(1, "one"), 1);
	assert_int_equal(append(65535, ""), 2);
	assert_int_equal(status().durable, 0);
	keep(3, "eight888");
	assert_int_equal(status().durable, 3);
	assert_int_equal(status().syncs, 1);
	close_journal();
	open_plain();
	assert_string_equal(the.found.text, "|1:one|65535:|3:eight888");
	keep(4, "more");
	close_journal();
	open_plain();
	assert_string_equal(the.found.text, "|1:one|65535:|3:eight888|4:more");
	assert_int_equal(status().cut, 0);
	assert_string_equal(the.log, "");
}

static void journal_close_commits_what_nobody_waited_for(void **state)
{
	open_plain();
	append(1, "one");
	close_journal();
	reef_store_crash(the.disk);
	open_plain();
	assert_string_equal(the.found.text, "|1:one");
}

static void journal_snapshot_replaces_segments(void **state)
{
	struct reef_journal_options options = plain;
	struct reef_disk_file *file;
	int i;

	options.segment_size = 100;
	assert_int_equal(try_open(NULL, &options), 0);
	for (i = 0; i < 10; i++)
		keep(1, "some bytes that fill a segment");
	assert_true(status().segments > 3);
	append(2, "before");
	snapshot("all");
	assert_int_equal(reef_journal_snapshot(the.journal, "x", 1), -EBUSY);
	keep(3, "after");
	assert_int_equal(status().snapshot, 11);
	assert_false(status().snapshot_busy);
	assert_int_equal(status().segments, 1);
	assert_int_equal(status().bytes, 40);
	assert_int_equal(
		reef_disk_open(the.disk, "segment-0000000000000001", 0, &file),
		-ENOENT);
	reef_store_crash(the.disk);
	close_journal();
	assert_int_equal(try_open(NULL, &options), 0);
	assert_string_equal(the.found.text, "all|3:after");
	assert_int_equal(status().snapshot, 11);
}

static void journal_large_snapshot_lets_records_pass(void **state)
{
	size_t size = 1000000;
	char *bytes = malloc(size);
	uint64_t sequence;

	assert_non_null(bytes);
	memset(bytes, 'x', size);
	open_plain();
	append(1, "one");
	assert_int_equal(reef_journal_snapshot(the.journal, bytes, size), 0);
	sequence = append(2, "two");
	assert_int_equal(reef_journal_wait(the.journal, sequence), 0);
	close_journal();
	free(bytes);
	open_plain();
	assert_memory_equal(the.found.text, "xxxx", 4);
	assert_int_equal(status().snapshot, 1);
	assert_int_equal(status().appended, 3); /* and the seal */
}

static void journal_limits_are_kept(void **state)
{
	struct reef_journal_options options = plain;
	uint64_t sequence = 99;

	options.record_max = 100;
	options.pending_max = 150;
	assert_int_equal(try_open(NULL, &options), 0);
	assert_int_equal(
		reef_journal_append(the.journal, 1, the.log, 101, &sequence),
		-EMSGSIZE);
	assert_int_equal(sequence, 99);
	assert_int_equal(
		reef_journal_append(the.journal, 1, the.log, 100, &sequence),
		0);
	assert_int_equal(
		reef_journal_append(the.journal, 1, the.log, 8, &sequence),
		-EAGAIN);
	assert_int_equal(reef_journal_wait(the.journal, 1), 0);
	assert_int_equal(
		reef_journal_append(the.journal, 1, the.log, 8, &sequence), 0);
	assert_int_equal(sequence, 2);
}

static void journal_failed_sync_is_final(void **state)
{
	uint64_t sequence;

	open_plain();
	keep(1, "one");
	sequence = append(2, "two");
	reef_store_fail_after(the.disk, 2); /* the write, then the sync */
	assert_int_equal(reef_journal_wait(the.journal, sequence), -EIO);
	assert_int_equal(reef_journal_wait(the.journal, 1), 0);
	assert_int_equal(reef_journal_wait(the.journal, sequence), -EIO);
	assert_int_equal(reef_journal_append(the.journal, 1, "", 0, &sequence),
			 -EIO);
	assert_int_equal(reef_journal_snapshot(the.journal, "", 0), -EIO);
	assert_int_equal(status().error, -EIO);
}

/* --- what is refused --- */

static void journal_second_opener_is_busy(void **state)
{
	struct reef_journal *first;

	open_plain();
	keep(1, "one");
	first = the.journal;
	assert_int_equal(try_open(NULL, &plain), -EBUSY);
	assert_ptr_equal(the.journal, first);
	keep(2, "two");
	close_journal();
	open_plain();
	assert_string_equal(the.found.text, "|1:one|2:two");
}

static void journal_thread_needs_a_scheduler_in_real_time(void **state)
{
	struct reef_sched *sched = sched_make(true, NULL);

	assert_int_equal(try_open(NULL, NULL), -EINVAL);
	assert_int_equal(try_open(sched, NULL), -EINVAL);
	reef_sched_destroy(sched);
}

static struct reef_disk_file *open_raw(const char *name)
{
	struct reef_disk_file *file;

	assert_int_equal(reef_disk_open(the.disk, name, 0, &file), 0);
	return file;
}

static void flip(const char *name, uint64_t at)
{
	struct reef_disk_file *file = open_raw(name);
	uint8_t byte;

	assert_int_equal(reef_disk_read(file, at, &byte, 1), 1);
	byte ^= 0x10;
	assert_int_equal(reef_disk_write(file, at, &byte, 1), 0);
	reef_disk_close(file);
}

static uint64_t size_of(const char *name)
{
	struct reef_disk_file *file = open_raw(name);
	int64_t size = reef_disk_size(file);

	reef_disk_close(file);
	return (uint64_t)size;
}

/* Every one of these bytes, flipped, is refused. */
static void flip_each(const char *name, uint64_t size)
{
	uint64_t at;

	for (at = 0; at < size; at++) {
		flip(name, at);
		assert_int_equal(try_open(NULL, &plain), -REEF_ECORRUPT);
		assert_memory_equal(the.log, name, strlen(name));
		flip(name, at);
	}
}

static void make_three_files(void)
{
	open_plain();
	keep(1, "one");
	keep(2, "two");
	snapshot("both");
	keep(3, "three");
	keep(4, "four");
}

#define SEGMENT_2 "segment-0000000000000002"

static void journal_flipped_byte_after_close_is_refused(void **state)
{
	uint64_t size;

	make_three_files();
	close_journal();
	flip_each("snapshot", size_of("snapshot"));
	/* All but the seal. */
	size = size_of(SEGMENT_2) - REEF_JOURNAL_RECORD_SIZE;
	flip_each(SEGMENT_2, size);
	flip(SEGMENT_2, size);
	open_plain();
	assert_string_equal(the.found.text, "both|3:three|4:four");
	assert_int_equal(status().cut, REEF_JOURNAL_RECORD_SIZE);
}

/* Where the last batch was not sealed, a damaged byte of it cannot be told from
 * a torn write; one of any earlier batch can. */
static void journal_flipped_byte_after_crash_cuts_or_is_refused(void **state)
{
	uint64_t at, size = 0, first_of_tail = 0, cuts = 0;
	int rc;

	for (at = 0; at == 0 || at < size; at++) {
		tear_down(state);
		set_up(state);
		make_three_files();
		reef_store_crash(the.disk);
		close_journal();
		size = size_of(SEGMENT_2);
		first_of_tail = size - reef_journal_record_room(4);
		flip(SEGMENT_2, at);
		rc = try_open(NULL, &plain);
		if (at < first_of_tail) {
			assert_int_equal(rc, -REEF_ECORRUPT);
			continue;
		}
		assert_int_equal(rc, 0);
		assert_string_equal(the.found.text, "both|3:three");
		assert_int_equal(status().cut, reef_journal_record_room(4));
		assert_non_null(strstr(the.log, "torn tail"));
		cuts++;
	}
	assert_int_equal(cuts, reef_journal_record_room(4));
}

static void journal_flipped_identity_is_mended(void **state)
{
	uint64_t at;

	open_plain();
	keep(1, "one");
	for (at = 0; at < REEF_JOURNAL_HEADER_SIZE; at++) {
		close_journal();
		flip("journal", at);
		open_plain();
		assert_string_equal(the.found.text, "|1:one");
	}
}

static void journal_refused_open_changes_nothing(void **state)
{
	unsigned writes, syncs;

	make_three_files();
	close_journal();
	flip("snapshot", REEF_JOURNAL_HEADER_SIZE);
	writes = the.wrapper.writes;
	syncs = the.wrapper.syncs;
	assert_int_equal(try_open(NULL, &plain), -REEF_ECORRUPT);
	assert_string_equal(the.log,
			    "snapshot at 64: the checksum does not match");
	flip("snapshot", REEF_JOURNAL_HEADER_SIZE);
	the.found.refuse = -ERANGE;
	assert_int_equal(try_open(NULL, &plain), -ERANGE);
	the.found.refuse = 0;
	assert_int_equal(the.wrapper.writes, writes);
	assert_int_equal(the.wrapper.syncs, syncs);
	assert_int_equal(the.wrapper.open_files, 0);
	open_plain();
	assert_string_equal(the.found.text, "both|3:three|4:four");
}

static void journal_missing_file_is_refused(void **state)
{
	const char *names[] = {"snapshot", "segment-0000000000000001",
			       "segment-0000000000000002"};
	size_t i;

	for (i = 0; i < 3; i++) {
		open_plain();
		keep(1, "one");
		close_journal();
		open_plain();
		keep(2, "two");
		close_journal();
		open_plain(); /* segment 3 */
		close_journal();
		assert_int_equal(reef_store_rename(the.disk, names[i], "x"), 0);
		assert_int_equal(try_open(NULL, &plain), -REEF_ECORRUPT);
		assert_non_null(strstr(the.log, names[i]));
		assert_non_null(strstr(the.log, "missing"));
		tear_down(state);
		set_up(state);
	}
}

static void journal_file_of_another_is_refused(void **state)
{
	struct reef_journal_options other = plain;

	open_plain();
	keep(1, "one");
	close_journal();
	assert_int_equal(reef_store_rename(the.disk, SEGMENT_2, "x"), -ENOENT);
	assert_int_equal(
		reef_store_rename(the.disk, "segment-0000000000000001", "keep"),
		0);
	assert_int_equal(reef_store_remove(the.disk, "journal"), 0);
	assert_int_equal(reef_store_remove(the.disk, "snapshot"), 0);
	other.salt = 43;
	assert_int_equal(try_open(NULL, &other), 0);
	close_journal();
	assert_int_equal(
		reef_store_rename(the.disk, "keep", "segment-0000000000000001"),
		0);
	assert_int_equal(try_open(NULL, &plain), -REEF_ECORRUPT);
	assert_non_null(strstr(the.log, "belongs elsewhere"));
}

static void journal_unknown_version_is_refused(void **state)
{
	struct reef_journal_header header;
	uint8_t bytes[REEF_JOURNAL_HEADER_SIZE];
	uint32_t crc;

	reef_journal_header_encode(
		&(struct reef_journal_header){.kind = REEF_JOURNAL_SEGMENT},
		bytes);
	assert_int_equal(reef_journal_header_decode(bytes, sizeof(bytes),
						    REEF_JOURNAL_SEGMENT,
						    &header),
			 0);
	assert_int_equal(reef_journal_header_decode(bytes, sizeof(bytes),
						    REEF_JOURNAL_SNAPSHOT,
						    &header),
			 -REEF_ECORRUPT);
	bytes[8]++;
	assert_int_equal(reef_journal_header_decode(bytes, sizeof(bytes),
						    REEF_JOURNAL_SEGMENT,
						    &header),
			 -REEF_ECORRUPT);
	crc = reef_crc32c(0, bytes, 12);
	crc = reef_crc32c(crc, bytes + 16, sizeof(bytes) - 16);
	reef_put32(bytes + 12, crc);
	assert_int_equal(reef_journal_header_decode(bytes, sizeof(bytes),
						    REEF_JOURNAL_SEGMENT,
						    &header),
			 -REEF_EVERSION);
}

/* A client may put the bytes of a record into a name of its own. */
static void journal_record_within_a_record_proves_nothing(void **state)
{
	uint8_t fake[REEF_JOURNAL_RECORD_SIZE];
	uint64_t sequence, end;

	open_plain();
	keep(1, "one");
	reef_journal_record_put(fake, 4, 1, NULL, 0);
	reef_journal_records_seal(fake, sizeof(fake), 41, 3);
	end = size_of("segment-0000000000000001");
	assert_int_equal(reef_journal_append(the.journal, 1, fake, sizeof(fake),
					     &sequence),
			 0);
	assert_int_equal(reef_journal_wait(the.journal, sequence), 0);
	reef_store_crash(the.disk);
	close_journal();
	flip("segment-0000000000000001", end);
	open_plain();
	assert_string_equal(the.found.text, "|1:one");
}

/* --- fibers and the thread --- */

static sem_t reached, released;

static void hold_sync(struct wrapper *wrapper)
{
	sem_post(&reached);
	sem_wait(&released);
}

static int append_and_wait(void *arg)
{
	int *kept = arg;
	uint64_t sequence;

	assert_int_equal(reef_journal_append(the.journal, 1, "x", 1, &sequence),
			 0);
	assert_int_equal(reef_journal_wait(the.journal, sequence), 0);
	assert_true(status().durable >= sequence);
	(*kept)++;
	return 0;
}

/* Runs while the thread is within its first sync: nobody has been answered. */
static int look_meanwhile(void *arg)
{
	int *kept = arg;

	sem_wait(&reached);
	assert_int_equal(*kept, 0);
	assert_int_equal(status().durable, 0);
	assert_int_equal(status().appended, 50);
	the.wrapper.before_sync = NULL;
	sem_post(&released);
	return 0;
}

static void journal_thread_syncs_once_for_many(void **state)
{
	struct reef_sched *sched = sched_make(false, NULL);
	struct reef_journal_options options = {.salt = 42};
	int i, kept = 0;

	sem_init(&reached, 0, 0);
	sem_init(&released, 0, 0);
	assert_int_equal(try_open(sched, &options), 0);
	the.wrapper.before_sync = hold_sync;
	for (i = 0; i < 50; i++)
		spawn(sched, append_and_wait, &kept);
	spawn(sched, look_meanwhile, &kept);
	run(sched);
	assert_int_equal(kept, 50);
	/* One for those that it took at once, one for the rest. */
	assert_in_range(status().syncs, 1, 2);
	close_journal();
	reef_sched_destroy(sched);
	sem_destroy(&reached);
	sem_destroy(&released);
	open_plain();
	assert_int_equal(status().durable, 51); /* and the seal */
}

static int wait_for_failure(void *arg)
{
	int *failed = arg;
	uint64_t sequence;
	int rc;

	rc = reef_journal_append(the.journal, 1, "x", 1, &sequence);
	if (rc == 0)
		rc = reef_journal_wait(the.journal, sequence);
	assert_int_equal(rc, -EIO);
	(*failed)++;
	return 0;
}

/* --- an owner with nothing to do sleeps --- */

struct idler {
	struct reef_poller poller;
	uint64_t polls, most;
	bool busy, over;
};

static int count_poll(struct reef_poller *poller)
{
	((struct idler *)poller)->polls++;
	return 0;
}

/* The owner polls all the time, so that it takes news as they are made. */
static int be_busy(void *arg)
{
	struct idler *idler = arg;

	while (!idler->over) {
		if (idler->busy)
			reef_fiber_yield();
		else
			reef_sleep(100000);
	}
	return 0;
}

static int append_and_rest(void *arg)
{
	struct idler *idler = arg;
	uint64_t before, sequence;
	int i;

	for (i = 0; i < 200; i++) {
		idler->busy = true;
		reef_journal_append(the.journal, 1, "x", 1, &sequence);
		reef_journal_wait(the.journal, sequence);
		idler->busy = false;
		before = idler->polls;
		reef_sleep(2000000);
		if (idler->polls - before > idler->most)
			idler->most = idler->polls - before;
	}
	idler->over = true;
	return 0;
}

static void journal_thread_lets_its_owner_sleep(void **state)
{
	struct reef_sched_options setup = {.spin_ns = 1};
	struct reef_journal_options options = {.salt = 42};
	struct idler idler = {.poller = {.poll = count_poll, .fd = -1}};
	struct reef_sched *sched;
	int fd = eventfd(0, EFD_CLOEXEC);

	assert_true(fd >= 0);
	idler.poller.fd = fd; /* nothing ever happens there */
	assert_int_equal(reef_sched_create(&setup, &sched), 0);
	assert_int_equal(try_open(sched, &options), 0);
	reef_sched_poller_add(sched, &idler.poller);
	spawn(sched, be_busy, &idler);
	spawn(sched, append_and_rest, &idler);
	run(sched);
	reef_sched_poller_remove(sched, &idler.poller);
	close(fd);
	close_journal();
	reef_sched_destroy(sched);
	/* Twenty naps of the busy one, and what comes with each. */
	assert_in_range(idler.most, 1, 1000);
}

static void journal_thread_tells_everyone_of_a_failure(void **state)
{
	struct reef_sched *sched = sched_make(false, NULL);
	struct reef_journal_options options = {.salt = 42};
	int i, failed = 0;

	assert_int_equal(try_open(sched, &options), 0);
	reef_store_fail_after(the.disk, 2);
	for (i = 0; i < 10; i++)
		spawn(sched, wait_for_failure, &failed);
	run(sched);
	assert_int_equal(failed, 10);
	close_journal();
	reef_sched_destroy(sched);
}

static void journal_thread_serves_who_is_no_fiber(void **state)
{
	struct reef_sched *sched = sched_make(false, NULL);
	struct reef_journal_options options = {.salt = 42};

	assert_int_equal(try_open(sched, &options), 0);
	keep(1, "one");
	snapshot("one");
	keep(2, "two");
	close_journal();
	reef_sched_destroy(sched);
	open_plain();
	assert_string_equal(the.found.text, "one|2:two");
}

static void slow_sync(struct wrapper *wrapper)
{
	if (reef_fiber_self())
		reef_sleep(1000);
}

static void journal_fiber_syncs_once_for_many(void **state)
{
	struct reef_sched *sched = sched_make(true, NULL);
	int i, kept = 0;

	assert_int_equal(try_open(sched, &plain), 0);
	the.wrapper.before_sync = slow_sync;
	for (i = 0; i < 50; i++)
		spawn(sched, append_and_wait, &kept);
	run(sched);
	assert_int_equal(kept, 50);
	assert_in_range(status().syncs, 1, 2);
	/* The committing fiber has ended; the next append starts another. */
	spawn(sched, append_and_wait, &kept);
	run(sched);
	assert_int_equal(kept, 51);
	the.wrapper.before_sync = NULL;
	close_journal();
	reef_sched_destroy(sched);
}

static int close_in_fiber(void *arg)
{
	append(1, "last");
	reef_fiber_yield();
	close_journal();
	return 0;
}

static void journal_close_in_a_fiber_waits_for_the_commit(void **state)
{
	struct reef_sched *sched = sched_make(true, NULL);

	assert_int_equal(try_open(sched, &plain), 0);
	the.wrapper.before_sync = slow_sync;
	spawn(sched, close_in_fiber, NULL);
	run(sched);
	assert_null(the.journal);
	reef_sched_destroy(sched);
	the.wrapper.before_sync = NULL;
	open_plain();
	assert_string_equal(the.found.text, "|1:last");
}

/* --- a real directory --- */

static void journal_lives_in_a_directory(void **state)
{
	const char *parent = getenv("TMPDIR");
	char path[80];
	struct reef_store *directory;
	int i;

	snprintf(path, sizeof(path), "%s/reef-journal-XXXXXX",
		 parent && strlen(parent) < 40 ? parent : "/tmp");
	assert_non_null(mkdtemp(path));
	assert_int_equal(reef_store_open_directory(path, &directory), 0);
	the.wrapper.inner = directory;
	open_plain();
	keep(1, "one");
	assert_int_equal(try_open(NULL, &plain), -EBUSY);
	snapshot("one");
	keep(2, "two");
	close_journal();
	open_plain();
	assert_string_equal(the.found.text, "one|2:two");
	snapshot("one and two");
	close_journal();
	open_plain();
	assert_string_equal(the.found.text, "one and two");
	close_journal();
	/* Nothing but these may be left. */
	for (i = 1; i < 9; i++) {
		char name[REEF_JOURNAL_NAME_SIZE];

		reef_journal_segment_name(name, (uint64_t)i);
		reef_store_remove(directory, name);
	}
	assert_int_equal(reef_store_remove(directory, "snapshot"), 0);
	assert_int_equal(reef_store_remove(directory, "journal"), 0);
	reef_store_destroy(directory);
	assert_int_equal(rmdir(path), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(journal_new_is_empty),
		TEST(journal_records_come_back_in_order),
		TEST(journal_close_commits_what_nobody_waited_for),
		TEST(journal_snapshot_replaces_segments),
		TEST(journal_large_snapshot_lets_records_pass),
		TEST(journal_limits_are_kept),
		TEST(journal_failed_sync_is_final),
		TEST(journal_second_opener_is_busy),
		TEST(journal_thread_needs_a_scheduler_in_real_time),
		TEST(journal_flipped_byte_after_close_is_refused),
		TEST(journal_flipped_byte_after_crash_cuts_or_is_refused),
		TEST(journal_flipped_identity_is_mended),
		TEST(journal_refused_open_changes_nothing),
		TEST(journal_missing_file_is_refused),
		TEST(journal_file_of_another_is_refused),
		TEST(journal_unknown_version_is_refused),
		TEST(journal_record_within_a_record_proves_nothing),
		TEST(journal_thread_syncs_once_for_many),
		TEST(journal_thread_lets_its_owner_sleep),
		TEST(journal_thread_tells_everyone_of_a_failure),
		TEST(journal_thread_serves_who_is_no_fiber),
		TEST(journal_fiber_syncs_once_for_many),
		TEST(journal_close_in_a_fiber_waits_for_the_commit),
		TEST(journal_lives_in_a_directory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
