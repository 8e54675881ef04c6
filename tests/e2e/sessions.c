/* sessions.c - programs that are in a pool, for crowd.py.
 *
 *	sessions hold N		N processes with a session each; "ready" when
 *all have one sessions load SPACE MAP	puts and gets without an end
 *
 * Both end when they are killed. */
#include <reef/map.h>
#include <reef/reef.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEYS 1000
#define TOGETHER 16

/* Open the pool, say so by a byte, and stay. */
static int hold(int ready_fd)
{
	struct reef *reef;
	int rc = reef_open(NULL, NULL, &reef);

	if (rc) {
		fprintf(stderr, "open: %d\n", rc);
		return 1;
	}
	if (write(ready_fd, "", 1) != 1)
		return 1;
	for (;;)
		pause();
}

static int hold_many(int count)
{
	const pid_t parent = getpid();
	char byte;
	int fds[2];

	if (pipe(fds))
		return 1;
	for (int i = 0; i < count; i++) {
		pid_t pid = fork();

		if (pid < 0)
			return 1;
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (getppid() != parent)
				return 1;
			close(fds[0]);
			return hold(fds[1]);
		}
		/* A few at a time: who joins has only so much patience. */
		if (i >= TOGETHER && read(fds[0], &byte, 1) != 1)
			return 1;
	}
	for (int i = 0; i < count && i < TOGETHER; i++)
		if (read(fds[0], &byte, 1) != 1)
			return 1;
	printf("ready\n");
	fflush(stdout);
	for (;;)
		pause();
}

static int use_map(const char *space_name, const char *map_name)
{
	struct reef_map_value value = {0};
	struct reef_space *space;
	struct reef_map *map;
	struct reef *reef;
	char key[16];
	int rc;

	rc = reef_open(NULL, NULL, &reef);
	if (!rc)
		rc = reef_space_open(reef, space_name, NULL, &space);
	if (!rc)
		rc = reef_map_open(space, map_name, NULL, &map);
	for (uint32_t i = 0; !rc; i++) {
		int size = snprintf(key, sizeof(key), "key%u", i % KEYS);

		if (i < KEYS || i % 8 == 0)
			rc = reef_map_put(map, key, (size_t)size, "value", 5, 0,
					  NULL);
		else
			rc = reef_map_get(map, key, (size_t)size, &value);
	}
	fprintf(stderr, "load: %d\n", rc);
	return 1;
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "hold") == 0)
		return hold_many(atoi(argv[2]));
	if (argc == 4 && strcmp(argv[1], "load") == 0)
		return use_map(argv[2], argv[3]);
	fprintf(stderr, "usage: sessions hold N | load SPACE MAP\n");
	return 2;
}
