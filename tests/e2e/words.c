/* words.c - programs that raise words of a space, for the tests to strike at.
 *
 * usage: words MODE SPACE COUNT [SIZE]
 *
 * make: COUNT kept blocks of SIZE bytes called "word0", "word1", ... whose
 *   first word is 1.
 * raise: each of them in turn, by CAS or FAA, until SIGTERM. None may be less
 *   than this program has seen it. Before each it WRITEs a word of its own,
 *   which must be what it wrote. At the end: how often it raised one, and how
 *   often it does not know. At SIGUSR1: how often so far.
 * sum: print what all of them say together.
 *
 * The pool is $REEF_POOL. Ends with 0, or 1 after an error, which it prints. */
#include <errno.h>
#include <reef/reef.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 64

struct words {
	struct reef *reef;
	struct reef_space *space;
	uint32_t count;
	uint64_t at[WORDS_MAX];
	uint64_t least[WORDS_MAX]; /* that was seen */
	uint64_t own, written;
	uint64_t raised, doubts;
};

static volatile sig_atomic_t stopping, asked;

static void stop(int number)
{
	stopping = 1;
}

static void ask(int number)
{
	asked = 1;
}

static int failed(const char *what, int rc)
{
	printf("error %s %s\n", what, reef_error_name(rc));
	return 1;
}

static int make(struct words *words, uint64_t size)
{
	const uint64_t one = 1;
	uint64_t address;
	char name[32];
	uint32_t i;
	int rc = 0;

	for (i = 0; rc == 0 && i < words->count; i++) {
		snprintf(name, sizeof(name), "word%u", i);
		rc = reef_alloc(words->space, size, &address);
		if (!rc)
			rc = reef_write(words->reef, address, &one, 8);
		if (!rc)
			rc = reef_keep(words->space, address);
		if (!rc)
			rc = reef_name_bind(words->space, name, address, NULL);
	}
	return rc ? failed("make", rc) : 0;
}

static int find(struct words *words)
{
	char name[32];
	uint32_t i;
	int rc = 0;

	for (i = 0; rc == 0 && i < words->count; i++) {
		snprintf(name, sizeof(name), "word%u", i);
		rc = reef_name_lookup(words->space, name, &words->at[i], NULL);
	}
	return rc ? failed("find", rc) : 0;
}

/* What is not known to have happened is settled, and can be done again. */
static int write_own(struct words *words)
{
	uint64_t value = words->written + 1;
	int rc;

	do
		rc = reef_write(words->reef, words->own, &value, 8);
	while (rc == -REEF_EINDOUBT);
	words->written = value;
	if (!rc)
		rc = reef_read(words->reef, words->own, &value, 8);
	if (rc)
		return failed("own", rc);
	if (value == words->written)
		return 0;
	printf("error own word is %llu, and was written %llu\n",
	       (unsigned long long)value, (unsigned long long)words->written);
	return 1;
}

static int see(struct words *words, uint32_t i, uint64_t value)
{
	if (value >= words->least[i]) {
		words->least[i] = value;
		return 0;
	}
	printf("error word %u at %016llx was %llu and is %llu\n", i,
	       (unsigned long long)words->at[i],
	       (unsigned long long)words->least[i], (unsigned long long)value);
	return 1;
}

static int raise_one(struct words *words, uint32_t i, bool by_faa)
{
	uint64_t before, value = 0;
	int rc;

	rc = reef_read(words->reef, words->at[i], &value, 8);
	if (rc)
		return failed("read", rc);
	if (see(words, i, value))
		return 1;
	if (by_faa)
		rc = reef_faa(words->reef, words->at[i], 1, &before);
	else
		rc = reef_cas(words->reef, words->at[i], value, value + 1,
			      &before);
	if (rc == -REEF_EINDOUBT) {
		words->doubts++;
		return 0;
	}
	if (rc)
		return failed("raise", rc);
	if (see(words, i, before))
		return 1;
	if (!by_faa && before != value)
		return 0;
	words->raised++;
	return see(words, i, before + 1);
}

static void tell(const struct words *words)
{
	printf("raised %llu doubts %llu\n", (unsigned long long)words->raised,
	       (unsigned long long)words->doubts);
	fflush(stdout);
}

static int raise_all(struct words *words)
{
	uint64_t round;
	int rc;

	rc = reef_alloc(words->space, 8, &words->own);
	if (rc)
		return failed("alloc", rc);
	for (round = 0; !stopping && rc == 0; round++) {
		rc = write_own(words);
		if (rc == 0)
			rc = raise_one(words, round % words->count,
				       round / words->count % 4 == 3);
		if (round == 100)
			printf("busy\n");
		if (asked || round == 100) {
			asked = 0;
			tell(words);
		}
	}
	tell(words);
	return rc;
}

static int sum(struct words *words)
{
	uint64_t value, all = 0;
	uint32_t i;
	int rc = 0;

	for (i = 0; rc == 0 && i < words->count; i++) {
		rc = reef_read(words->reef, words->at[i], &value, 8);
		all += value;
	}
	if (rc)
		return failed("sum", rc);
	printf("sum %llu\n", (unsigned long long)all);
	return 0;
}

int main(int argc, char **argv)
{
	const struct sigaction ends = {.sa_handler = stop};
	const struct sigaction asks = {.sa_handler = ask,
				       .sa_flags = SA_RESTART};
	struct words words = {0};
	int rc;

	if (argc < 4)
		return 2;
	sigaction(SIGTERM, &ends, NULL);
	sigaction(SIGUSR1, &asks, NULL);
	words.count = (uint32_t)strtoul(argv[3], NULL, 10);
	if (words.count < 1 || words.count > WORDS_MAX)
		return 2;
	rc = reef_open(NULL, NULL, &words.reef);
	if (!rc)
		rc = reef_space_open(words.reef, argv[2], NULL, &words.space);
	if (rc)
		rc = failed("open", rc);
	else if (!strcmp(argv[1], "make"))
		rc = make(&words, strtoull(argc > 4 ? argv[4] : "8", NULL, 10));
	else if (!(rc = find(&words)))
		rc = strcmp(argv[1], "sum") ? raise_all(&words) : sum(&words);
	reef_close(words.reef);
	return rc;
}
