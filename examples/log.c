/* log.c - a log in the memory of a pool. With `reef up` running use NULL
 * instead of "embedded:64M": then any process, on any machine, appends to the
 * same log and reads it. */
#include <reef/fiber.h>
#include <reef/log.h>
#include <stdio.h>
#include <string.h>

static int show(void *context, uint64_t position, const void *bytes,
		size_t size)
{
	(void)context;
	printf("%llu: %.*s\n", (unsigned long long)position, (int)size,
	       (const char *)bytes);
	return 0;
}

static int use(struct reef_log *log)
{
	struct iovec order[] = {
		{(void *)"take 5 from ann", 15},
		{(void *)"give 5 to bob", 13},
	};
	uint64_t at = 0;
	int rc = reef_log_append(log, "hello", 5, NULL);

	/* All of them or none, one behind the other. */
	if (!rc)
		rc = reef_log_append_many(log, order, 2, NULL);
	/* Whoever follows a log sleeps until something is there. */
	while (!rc && at < 3) {
		rc = reef_log_wait(log, at, REEF_FOREVER);
		if (!rc)
			rc = reef_log_read(log, at, 64, show, NULL, &at);
	}
	/* What everybody has read can go. */
	return rc ? rc : reef_log_trim(log, at);
}

int main(void)
{
	struct reef_space_options make = {.flags = REEF_SPACE_CREATE};
	struct reef_log *log = NULL;
	struct reef_space *space;
	struct reef *reef = NULL;
	int rc = reef_open("embedded:64M", NULL, &reef);

	if (!rc)
		rc = reef_space_open(reef, "examples", &make, &space);
	if (!rc)
		rc = reef_log_open(space, "orders", NULL, &log);
	if (!rc)
		rc = use(log);
	if (rc)
		fprintf(stderr, "log: %s\n", reef_error_text(rc));
	reef_log_close(log);
	reef_close(reef);
	return rc ? 1 : 0;
}
