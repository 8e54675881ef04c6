/* elect.c - two candidates, one leader. With `reef up` running use NULL instead
 * of "embedded:64M": then they can be two processes, on any machines, and when
 * one dies the other leads. */
#include <errno.h>
#include <reef/sync.h>
#include <stdio.h>

static int lead(struct reef_election *self, struct reef_election *other)
{
	struct reef_lease_info info;
	uint64_t term;
	int rc = reef_election_win(self, REEF_FOREVER, &term);

	if (!rc)
		rc = reef_election_look(other, &info);
	if (rc)
		return rc;
	printf("term %llu: %s leads\n", (unsigned long long)term, info.holder);
	if (reef_election_win(other, 0, NULL) != -EBUSY)
		return -EXDEV;
	/* Here a leader does its work, as long as it leads. */
	if (reef_election_check(self))
		return -EXDEV;
	return reef_election_resign(self);
}

static int campaign(struct reef_space *space)
{
	struct reef_election *anna = NULL, *ben = NULL;
	int rc = reef_election_open(space, "chief", 0, "anna", &anna);

	if (!rc)
		rc = reef_election_open(space, "chief", 0, "ben", &ben);
	if (!rc)
		rc = lead(anna, ben);
	if (!rc)
		rc = lead(ben, anna);
	reef_election_close(ben);
	reef_election_close(anna);
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
		rc = campaign(space);
	if (rc)
		fprintf(stderr, "%s\n", reef_error_text(rc));
	reef_close(reef);
	return rc != 0;
}
