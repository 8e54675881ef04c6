/* hello.c - a pool inside this process: a space, a block, a name. With `reef
 * up` running, use NULL instead of "embedded:64M" and another process finds
 * the name. */
#include <reef/reef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static int failed(const char *what, int rc)
{
	fprintf(stderr, "%s: %s\n", what, reef_error_text(rc));
	return 1;
}

static int hello(struct reef *reef, struct reef_space *space)
{
	const char text[] = "hello from far away";
	uint64_t address, found;
	char got[sizeof(text)];
	int rc;

	rc = reef_alloc(space, sizeof(text), &address);
	if (rc)
		return failed("alloc", rc);
	rc = reef_write(reef, address, text, sizeof(text));
	if (!rc)
		rc = reef_name_bind(space, "greeting", address, NULL);
	if (!rc)
		rc = reef_name_lookup(space, "greeting", &found, NULL);
	if (!rc)
		rc = reef_read(reef, found, got, sizeof(got));
	if (rc)
		return failed("write, name, read", rc);
	printf("%s\n", got);
	rc = reef_free(space, found, 0);
	if (rc)
		return failed("free", rc);
	return strcmp(text, got) != 0;
}

int main(void)
{
	struct reef_space_options create = {.flags = REEF_SPACE_CREATE};
	struct reef_space *space;
	struct reef *reef;
	int rc;

	rc = reef_open("embedded:64M", NULL, &reef);
	if (rc)
		return failed("open", rc);
	rc = reef_space_open(reef, "examples", &create, &space);
	rc = rc ? failed("space", rc) : hello(reef, space);
	reef_close(reef);
	return rc;
}
