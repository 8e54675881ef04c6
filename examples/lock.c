/* lock.c - a word of the pool that only a lock protects. With `reef up` running
 * use NULL instead of "embedded:64M": then the two participants can be two
 * processes, on any machines. */
#include <reef/sync.h>
#include <stdio.h>

static int add(struct reef *reef, struct reef_lock *lock, uint64_t address)
{
	uint64_t value;
	int rc = reef_lock_take(lock, REEF_LOCK_EXCLUSIVE, REEF_FOREVER);

	/* 1, REEF_LOCK_INHERITED: whoever held it before died. What it left
	 * would have to be repaired here; a word cannot be half done. */
	if (rc < 0)
		return rc;
	rc = reef_read(reef, address, &value, 8);
	value++;
	if (!rc)
		rc = reef_write(reef, address, &value, 8);
	printf("now %llu\n", (unsigned long long)value);
	return rc ? rc : reef_lock_give(lock);
}

static int use(struct reef *reef, struct reef_space *space)
{
	struct reef_lock *mine = NULL, *yours = NULL;
	uint64_t address, zero = 0;
	int rc = reef_alloc(space, 8, &address);

	if (!rc)
		rc = reef_write(reef, address, &zero, 8);
	if (!rc)
		rc = reef_lock_open(space, "counter", NULL, &mine);
	if (!rc)
		rc = reef_lock_open(space, "counter", NULL, &yours);
	if (!rc)
		rc = add(reef, mine, address);
	if (!rc)
		rc = add(reef, yours, address);
	reef_lock_close(yours);
	reef_lock_close(mine);
	return rc;
}

int main(void)
{
	struct reef_space_options make = {.flags = REEF_SPACE_CREATE};
	struct reef_space *space;
	struct reef *reef = NULL;
	int rc = reef_open("embedded:64M", NULL, &reef);

	if (!rc)
		rc = reef_space_open(reef, "examples", &make, &space);
	if (!rc)
		rc = use(reef, space);
	if (rc)
		fprintf(stderr, "%s\n", reef_error_text(rc));
	reef_close(reef);
	return rc != 0;
}
