/* test_redis_scribble.c - R10: a door whose map anybody may have written to.
 *
 * A door serves a map of a pool beside it, which it has mapped. One word of the
 * map at a time gets a bad value, while a client of the pool dies that had put
 * some keys, so that the door's session recovers what it left. Whatever Redis
 * clients ask meanwhile is answered, be it with an error. */
#include "fixture/local_pool.h"
#include "fixture/map_words.h"
#include "fixture/seeds.h"

#include "gateway/redis/server/door.h"
#include "kv/internal.h"
#include "pool/client/client.h"

#include <poll.h>
#include <pthread.h>
#include <reef/map.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEYS 100u
#define CHILD_KEYS 20u
#define TRIALS 24u /* with one pool: what they leak fits */
#define ROUNDS_MAX 400u
#define STUCK 100 /* seconds, for one word */
#define PATIENCE_MS 60000
#define TTL_NS UINT64_C(300000000)

struct scene {
	struct server server;
	struct redis_door *door;
	pthread_t thread;
	struct reef *reef;
	struct map_words words;
	uint32_t marks; /* answers that were asked for */
	int fd;
};

/* --- a client of the pool that dies --- */

static int put_child_keys(struct reef_map *map)
{
	static const char bytes[3000];
	char key[32];
	int rc = 0;

	for (uint32_t i = 0; i < CHILD_KEYS && !rc; i++)
		rc = reef_map_put(
			map, key,
			(size_t)snprintf(key, sizeof(key), "child %u", i),
			bytes, i % 4 ? 20 : sizeof(bytes), 0, NULL);
	return rc;
}

/* What the other process does: put keys, say which session did, wait. */
static int child_main(void)
{
	const struct reef_options options = {.fabrics = "shm"};
	struct reef_space *space;
	struct reef_map *map;
	struct reef *reef;
	uint32_t session;
	int rc;

	/* If the test fails, this process goes with it. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	map_tables = (struct hash_options){.groups = 2, .seed = 1};
	rc = reef_open("local", &options, &reef);
	if (!rc)
		rc = reef_space_open(reef, "redis", NULL, &space);
	if (!rc)
		rc = reef_map_open(space, "db0", NULL, &map);
	if (!rc)
		rc = put_child_keys(map);
	session = rc ? 0 : reef_session(reef);
	if (write(STDOUT_FILENO, &session, sizeof(session)) < 0)
		return 1;
	if (rc)
		return 1;
	for (;;)
		pause();
}

static pid_t start_child(uint32_t *session)
{
	char *arguments[] = {(char *)"child", (char *)"--child", (char *)"x",
			     NULL};
	posix_spawn_file_actions_t actions;
	pid_t pid;
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
	posix_spawn_file_actions_addclose(&actions, ends[0]);
	assert_int_equal(posix_spawn(&pid, "/proc/self/exe", &actions, NULL,
				     arguments, environ),
			 0);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	assert_int_equal(read(ends[0], session, sizeof(*session)),
			 sizeof(*session));
	close(ends[0]);
	return pid;
}

/* --- a client of the door --- */

static void reach_door(struct scene *scene)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};

	snprintf(name.sun_path, sizeof(name.sun_path), "%s",
		 scratch_path("door"));
	scene->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(
		connect(scene->fd, (struct sockaddr *)&name, sizeof(name)), 0);
}

/* Read until what was marked has been answered. */
static void read_to_mark(struct scene *scene, const char *mark)
{
	static char got[1 << 20];
	struct pollfd waits = {scene->fd, POLLIN, 0};
	size_t used = 0, size = strlen(mark);
	ssize_t count;

	for (;;) {
		assert_int_equal(poll(&waits, 1, PATIENCE_MS), 1);
		count = recv(scene->fd, got + used, sizeof(got) - used, 0);
		assert_true(count > 0);
		used += (size_t)count;
		if (used >= size && !memcmp(got + used - size, mark, size))
			return;
		/* Only the end is looked at. */
		if (used > sizeof(got) / 2) {
			memmove(got, got + used - size, size);
			used = size;
		}
	}
}

/* Send commands, and see to it that each has an answer. */
static void ask(struct scene *scene, const char *text)
{
	char mark[64], echo[64];
	size_t size = strlen(text);

	assert_int_equal(send(scene->fd, text, size, MSG_NOSIGNAL), size);
	size = (size_t)snprintf(echo, sizeof(echo), "ECHO mark-%08u\r\n",
				++scene->marks);
	assert_int_equal(send(scene->fd, echo, size, MSG_NOSIGNAL), size);
	snprintf(mark, sizeof(mark), "$13\r\nmark-%08u\r\n", scene->marks);
	read_to_mark(scene, mark);
}

static void set_keys(struct scene *scene)
{
	char text[64 + 1000], value[1000];

	memset(value, 'v', sizeof(value));
	for (uint32_t i = 0; i < KEYS; i++) {
		snprintf(text, sizeof(text), "SET key%u %.*s\r\n", i,
			 i % 8 ? 10 : 900, value);
		ask(scene, text);
	}
}

/* Everything that reads, and a little that changes. */
static void use_briefly(struct scene *scene, uint32_t round)
{
	char text[256];

	snprintf(text, sizeof(text),
		 "GET key%u\r\nSET key%u again\r\nDEL key%u\r\nEXISTS key%u\r\n"
		 "GET \"child %u\"\r\n",
		 round % KEYS, (round + 7) % KEYS, (round + 31) % KEYS,
		 (round + 50) % KEYS, round % CHILD_KEYS);
	ask(scene, text);
	if (round % 16 == 3)
		ask(scene, "DBSIZE\r\nRANDOMKEY\r\nSCAN 0 COUNT 1000\r\n");
}

static void use_all(struct scene *scene)
{
	char text[256];

	for (uint32_t i = 0; i < KEYS; i += 4) {
		snprintf(text, sizeof(text),
			 "GET key%u\r\nMGET key%u key%u key%u none\r\n"
			 "APPEND key%u x\r\nSTRLEN key%u\r\nTTL key%u\r\n",
			 i, i + 1, i + 2, i + 3, i, i + 1, i);
		ask(scene, text);
		snprintf(text, sizeof(text),
			 "SET key%u x EX 100\r\nINCR count\r\nDEL key%u\r\n"
			 "RENAME key%u other%u\r\nGETDEL key%u\r\n",
			 i, i + 1, i + 2, i, i + 3);
		ask(scene, text);
	}
	ask(scene, "KEYS *\r\nDBSIZE\r\nRANDOMKEY\r\n");
	ask(scene, "SCAN 0 COUNT 10\r\nSCAN 7 COUNT 1000\r\n");
}

/* --- one word --- */

/* Use the map until the session of the dead child is fenced, and a while
 * longer: its recovery comes after that. */
static void use_during_recovery(struct scene *scene, uint32_t session)
{
	enum reef_session_view view = REEF_VIEW_ALIVE;
	uint32_t rounds = 0, left = 20;

	while (left && rounds++ < ROUNDS_MAX) {
		use_briefly(scene, rounds);
		if (reef_session_check(scene->reef, session, &view))
			break;
		left -= view == REEF_VIEW_ENDED;
		if (view != REEF_VIEW_ENDED)
			reef_sleep(TTL_NS / 100);
	}
}

static void try_one(struct scene *scene, uint64_t n)
{
	struct map_words *words = &scene->words;
	uint32_t session;
	pid_t child;

	reef_random_init(&words->random, n + 1);
	reach_door(scene);
	ask(scene, "FLUSHALL\r\n");
	set_keys(scene);
	child = start_child(&session);
	assert_int_not_equal(session, 0);
	map_words_find(words, "db0");
	map_words_scribble(words, map_words_random(words),
			   (enum map_bad)(n % MAP_BADS), n);
	alarm(STUCK);
	use_briefly(scene, 0);
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	use_during_recovery(scene, session);
	use_all(scene);
	ask(scene, "FLUSHALL\r\n");
	close(scene->fd);
	/* What cannot be emptied is forgotten. */
	if (reef_map_drop(words->space, "db0"))
		reef_name_unbind(words->space, "db0", 0);
	alarm(0);
}

/* --- all of it --- */

static void *run_door(void *door)
{
	return (void *)(intptr_t)redis_door_run(door);
}

static void open_scene(struct scene *scene)
{
	const struct redis_door_options door = {
		.pool = "local",
		.fabrics = "shm",
		.unix_path = scratch_path("door"),
		.threads = 1,
	};
	const struct reef_options options = {.fabrics = "shm"};

	server_start_brief(&scene->server, TTL_NS);
	assert_int_equal(redis_door_create(&door, &scene->door, NULL), 0);
	assert_int_equal(
		pthread_create(&scene->thread, NULL, run_door, scene->door), 0);
	assert_int_equal(reef_open("local", &options, &scene->reef), 0);
	assert_int_equal(reef_space_open(scene->reef, "redis", NULL,
					 &scene->words.space),
			 0);
	scene->words.reef = scene->reef;
}

static void close_scene(struct scene *scene)
{
	void *rc;

	reef_close(scene->reef);
	redis_door_stop(scene->door);
	pthread_join(scene->thread, &rc);
	assert_null(rc);
	redis_door_destroy(scene->door);
	server_stop(&scene->server);
}

static uint64_t last;

static int tell_last(void **state)
{
	print_message("last: REEF_SEED=%llu\n", (unsigned long long)last);
	return scratch_remove(state);
}

static void redis_scribbled_words_are_survived(void **state)
{
	static struct scene scene;
	uint64_t count = seeds_of(40, 2000), trials = TRIALS;

	(void)state;
	map_tables = (struct hash_options){.groups = 2, .seed = 1};
	open_scene(&scene);
	for (last = seeds_first(); seeds_has(last, count); last++) {
		if (!--trials) {
			close_scene(&scene);
			open_scene(&scene);
			trials = TRIALS;
		}
		try_one(&scene, last);
	}
	close_scene(&scene);
	map_tables = (struct hash_options){0};
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			redis_scribbled_words_are_survived, scratch_make,
			tell_last),
	};

	if (argc == 3 && !strcmp(argv[1], "--child"))
		return child_main();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
