/* test_mesh.c - several fabrics as one: which address becomes a link. */
#include "base/fiber/sched.h"
#include "fabric/sim/sim.h"
#include "fixture/scratch.h"
#include "fixture/try.h"
#include "fixture/units.h"
#include "pool/mesh.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SESSION (((uint32_t)0x9000 << 16) | 1u)

static int credential(void *context, const char *identity, uint32_t session,
		      uint8_t key[REEF_KEY_SIZE])
{
	int *refuse = context;

	if (refuse && *refuse)
		return *refuse;
	memset(key, 7, REEF_KEY_SIZE);
	return 0;
}

static struct reef_connect_options as_session(uint32_t session)
{
	struct reef_connect_options options = {
		.session = session,
		.identity = "test",
		.timeout_ns = 5 * SECOND,
	};

	memset(options.key, 7, REEF_KEY_SIZE);
	return options;
}

/* --- opening --- */

static void mesh_kinds_are_opened_in_order(void **state)
{
	struct reef_mesh_options options = {.kinds = "  tcp  shm "};
	struct reef_mesh *mesh;

	assert_int_equal(reef_mesh_open(&options, &mesh), 0);
	assert_int_equal(reef_mesh_count(mesh), 2);
	assert_string_equal(reef_fabric_kind(reef_mesh_fabric(mesh, 0)), "tcp");
	assert_string_equal(reef_fabric_kind(reef_mesh_fabric(mesh, 1)), "shm");
	reef_mesh_close(mesh);
	options.kinds = NULL;
	assert_int_equal(reef_mesh_open(&options, &mesh), 0);
	assert_true(reef_mesh_count(mesh) >= 2);
	assert_string_equal(reef_fabric_kind(reef_mesh_fabric(mesh, 0)), "shm");
	reef_mesh_close(mesh);
	reef_mesh_close(NULL);
}

static void mesh_bad_kinds_are_refused(void **state)
{
	static const char *const bad[] = {"",	    "  ",
					  "udp",    "tcp tcp",
					  "tcp:1",  "averylongnameofafabric",
					  "shm,tcp"};
	struct reef_mesh_options options = {0};
	struct reef_mesh *mesh;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		options.kinds = bad[i];
		assert_int_equal(reef_mesh_open(&options, &mesh), -EINVAL);
	}
}

static int count_opened(void *context, struct reef_fabric *fabric)
{
	int *left = context;

	return (*left)-- > 0 ? 0 : -EXDEV;
}

static void mesh_opened_is_called_and_may_refuse(void **state)
{
	struct reef_mesh_options options = {.kinds = "tcp shm"};
	struct reef_mesh *mesh;
	int left = 2;

	options.opened = count_opened;
	options.context = &left;
	assert_int_equal(reef_mesh_open(&options, &mesh), 0);
	assert_int_equal(left, 0);
	reef_mesh_close(mesh);
	left = 1;
	assert_int_equal(reef_mesh_open(&options, &mesh), -EXDEV);
}

static void mesh_addresses_name_fabrics(void **state)
{
	struct reef_mesh_options options = {.kinds = "shm tcp"};
	struct reef_mesh *mesh;

	assert_int_equal(reef_mesh_open(&options, &mesh), 0);
	assert_true(reef_mesh_names(mesh, "tcp:a:1 shm:@b", 0));
	assert_true(reef_mesh_names(mesh, "  tcp:a:1  shm:@b ", 1));
	assert_false(reef_mesh_names(mesh, "tcp:a:1 verbs:b:1", 0));
	assert_true(reef_mesh_names(mesh, "verbs:a:1 tcp:b:1", 1));
	assert_false(reef_mesh_names(mesh, "  ", 0));
	assert_false(reef_mesh_names(mesh, "tcpx:a shmtcp:b", 1));
	reef_mesh_close(mesh);
}

/* --- listening and connecting, both ends in one thread --- */

struct pair {
	struct reef_sched *sched;
	struct reef_mesh *mesh;
	struct reef_port *server, *client;
	int refuse;
	char real[256];
};

static void in_fiber(struct pair *pair, int (*fn)(void *arg))
{
	struct reef_mesh_options options = {.kinds = "shm tcp"};
	struct reef_fiber *fiber;
	int result;

	assert_int_equal(reef_sched_create(NULL, &pair->sched), 0);
	assert_int_equal(reef_mesh_open(&options, &pair->mesh), 0);
	assert_int_equal(reef_port_open(pair->mesh, pair->sched, &pair->server),
			 0);
	assert_int_equal(reef_port_open(pair->mesh, pair->sched, &pair->client),
			 0);
	assert_int_equal(reef_fiber_spawn(pair->sched, fn, pair, &fiber), 0);
	assert_int_equal(reef_sched_run(pair->sched), 0);
	assert_int_equal(reef_fiber_join(fiber, &result), 0);
	assert_int_equal(result, 0);
	reef_port_close(pair->client);
	reef_port_close(pair->server);
	reef_mesh_close(pair->mesh);
	reef_sched_destroy(pair->sched);
}

static int listen_both(struct pair *pair)
{
	struct reef_listen_options options = {.credential = credential,
					      .context = &pair->refuse};
	char text[128];

	snprintf(text, sizeof(text), "tcp:127.0.0.1:0 shm:%s",
		 scratch_path("door"));
	return reef_port_listen(pair->server, text, &options, pair->real,
				sizeof(pair->real));
}

static int connect_to(struct pair *pair, const char *text, uint64_t domain,
		      const char *kind, uint32_t want)
{
	struct reef_connect_options options = as_session(SESSION);
	struct reef_link *link;
	uint32_t door = 99;

	TRY(reef_port_connect(pair->client, text, domain, &options, &link,
			      &door));
	if (strcmp(reef_fabric_kind(reef_link_fabric(link)), kind) != 0 ||
	    door != want)
		return -EXDEV;
	if (reef_queue_fd(reef_port_queue_of(pair->client, link)) < 0)
		return -EBADF;
	reef_link_close(link);
	return 0;
}

static int shm_first(void *arg)
{
	struct pair *pair = arg;
	uint64_t here = reef_domain_cpu();

	TRY(listen_both(pair));
	TRY(strncmp(pair->real, "tcp:127.0.0.1:", 14) != 0);
	TRY(!strstr(pair->real, " shm:"));
	TRY(connect_to(pair, pair->real, here, "shm", 1));
	TRY(connect_to(pair, pair->real, 0, "shm", 1));
	TRY(connect_to(pair, pair->real, here + 1, "tcp", 0));
	return 0;
}

static void mesh_peer_on_this_machine_is_reached_by_shm(void **state)
{
	struct pair pair = {0};

	in_fiber(&pair, shm_first);
}

static int no_socket(void *arg)
{
	struct pair *pair = arg;
	char tcp[64], text[320];

	TRY(listen_both(pair));
	snprintf(tcp, sizeof(tcp), "%.*s", (int)strcspn(pair->real, " "),
		 pair->real);
	snprintf(text, sizeof(text), "shm:%s %s", scratch_path("nothing"), tcp);
	TRY(connect_to(pair, text, 0, "tcp", 1));
	TRY(connect_to(pair, text, reef_domain_cpu(), "tcp", 1));
	snprintf(text, sizeof(text), "shm:@reef-test-nobody %s", tcp);
	TRY(connect_to(pair, text, 0, "tcp", 1));
	snprintf(text, sizeof(text), "verbs:127.0.0.1:1 %s", tcp);
	TRY(connect_to(pair, text, 0, "tcp", 1));
	return 0;
}

static void mesh_socket_that_is_not_there_falls_through(void **state)
{
	struct pair pair = {0};

	in_fiber(&pair, no_socket);
}

static int refuse_is(struct pair *pair, int refuse, int want)
{
	struct reef_connect_options options = as_session(SESSION);
	struct reef_link *link;
	int rc;

	pair->refuse = refuse;
	rc = reef_port_connect(pair->client, pair->real, 0, &options, &link,
			       NULL);
	pair->refuse = 0;
	if (!rc)
		reef_link_close(link);
	return rc == want ? 0 : rc ? rc : -EXDEV;
}

static int fence_here(struct pair *pair, uint32_t index)
{
	return reef_fence(reef_port_queue(pair->server, index), SESSION,
			  5 * SECOND);
}

static int refusals(void *arg)
{
	struct pair *pair = arg;
	struct reef_connect_options options = as_session(SESSION);
	struct reef_link *link;

	TRY(listen_both(pair));
	TRY(refuse_is(pair, -REEF_EAUTH, -REEF_EAUTH));
	/* Fenced on shm: tcp, where it is not, is not asked. */
	TRY(fence_here(pair, 0));
	TRY(refuse_is(pair, 0, -REEF_EFENCED));
	options.session += 2;
	options.timeout_ns = SECOND;
	if (reef_port_connect(pair->client, "udp:1", 0, &options, &link,
			      NULL) != -EINVAL ||
	    reef_port_connect(pair->client, "", 0, &options, &link, NULL) !=
		    -EINVAL ||
	    reef_port_connect(pair->client, "a b c d e", 0, &options, &link,
			      NULL) != -EINVAL)
		return -EXDEV;
	return 0;
}

static void mesh_refusal_is_told(void **state)
{
	struct pair pair = {0};

	in_fiber(&pair, refusals);
}

static int bad_listen(void *arg)
{
	struct pair *pair = arg;
	struct reef_listen_options options = {.credential = credential};
	char text[256], small[8];

	if (reef_port_listen(pair->server, "", &options, NULL, 0) != -EINVAL ||
	    reef_port_listen(pair->server, "verbs:127.0.0.1:0", &options, NULL,
			     0) != -EINVAL ||
	    reef_port_listen(pair->server, "tcp:127.0.0.1:0", &options, small,
			     sizeof(small)) != -ENOSPC)
		return -EXDEV;
	/* The second fails, so the first has ended, too. */
	snprintf(text, sizeof(text), "shm:%s tcp:127.0.0.1:none",
		 scratch_path("door"));
	if (!reef_port_listen(pair->server, text, &options, NULL, 0))
		return -EXDEV;
	TRY(listen_both(pair));
	return listen_both(pair) == -EBUSY ? 0 : -EXDEV;
}

static void mesh_bad_listen_leaves_nothing(void **state)
{
	struct pair pair = {0};

	in_fiber(&pair, bad_listen);
}

/* --- a peer that may not fence us --- */

#define NOBODY 65534

/* In a child: listen as a user that may not signal root, until killed. */
static void serve_as_nobody(int to, const char *directory)
{
	struct reef_listen_options options = {.credential = credential};
	struct reef_mesh_options kinds = {.kinds = "shm tcp"};
	char text[192], real[256] = "";
	struct reef_mesh *mesh;
	struct reef_port *port;

	snprintf(text, sizeof(text), "shm:%s/door tcp:127.0.0.1:0", directory);
	if (setgid(NOBODY) || setuid(NOBODY) || reef_mesh_open(&kinds, &mesh) ||
	    reef_port_open(mesh, NULL, &port) ||
	    reef_port_listen(port, text, &options, real, sizeof(real)))
		real[0] = '\0';
	if (write(to, real, sizeof(real)) != sizeof(real) || !real[0])
		_exit(1);
	for (;;) {
		reef_port_poll(port);
		poll(NULL, 0, 1);
	}
}

static int reach_nobody(void *arg)
{
	struct pair *pair = arg;

	return connect_to(pair, pair->real, reef_domain_cpu(), "tcp", 1);
}

static void mesh_peer_that_may_not_fence_us_gets_tcp(void **state)
{
	struct pair pair = {0};
	int ends[2];
	pid_t child;

	if (geteuid() != 0)
		skip();
	assert_int_equal(chmod(scratch, 0777), 0);
	assert_int_equal(pipe(ends), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		serve_as_nobody(ends[1], scratch);
	assert_int_equal(read(ends[0], pair.real, sizeof(pair.real)),
			 sizeof(pair.real));
	close(ends[0]);
	close(ends[1]);
	if (pair.real[0])
		in_fiber(&pair, reach_nobody);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	assert_true(pair.real[0]);
}

/* --- sim --- */

static int sim_node(struct reef_sim_host *host, void *arg)
{
	struct reef_mesh_options options = {.kinds = "sim",
					    .fabric = {.sim_host = host}};
	struct reef_listen_options listen = {.credential = credential};
	struct reef_mesh *mesh;
	struct reef_port *port;
	char real[64];
	int rc;

	TRY(reef_mesh_open(&options, &mesh));
	TRY(reef_port_open(mesh, NULL, &port));
	rc = reef_port_listen(port, "sim:node/1", &listen, real, sizeof(real));
	if (!rc)
		rc = reef_sleep(2 * SECOND);
	reef_port_close(port);
	reef_mesh_close(mesh);
	return rc;
}

static int sim_client(struct reef_sim_host *host, void *arg)
{
	struct reef_mesh_options options = {.kinds = "sim",
					    .fabric = {.sim_host = host}};
	struct reef_connect_options as = as_session(SESSION);
	struct reef_mesh *mesh;
	struct reef_port *port;
	struct reef_link *link;
	uint32_t door;
	int rc;

	TRY(reef_mesh_open(&options, &mesh));
	TRY(reef_port_open(mesh, NULL, &port));
	TRY(reef_sleep(SECOND));
	rc = reef_port_connect(port, "tcp:1 sim:node/1", 5, &as, &link, &door);
	if (!rc) {
		if (door != 1)
			rc = -EXDEV;
		reef_link_close(link);
	}
	reef_port_close(port);
	reef_mesh_close(mesh);
	return rc;
}

static void mesh_in_simulation_is_the_same(void **state)
{
	struct reef_sim_options options = {.seed = 1};
	struct reef_sim_host *node, *client;
	struct reef_sim *sim;
	int result;

	assert_int_equal(reef_sim_create(&options, &sim), 0);
	assert_int_equal(reef_sim_host_add(sim, "node", sim_node, NULL, &node),
			 0);
	assert_int_equal(
		reef_sim_host_add(sim, "client", sim_client, NULL, &client), 0);
	assert_int_equal(reef_sim_run(sim, 10 * SECOND), 0);
	assert_int_equal(reef_sim_host_result(node, &result), 0);
	assert_int_equal(result, 0);
	assert_int_equal(reef_sim_host_result(client, &result), 0);
	assert_int_equal(result, 0);
	reef_sim_destroy(sim);
}

#define TEST(name)                                                             \
	cmocka_unit_test_setup_teardown(name, scratch_make, scratch_remove)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mesh_kinds_are_opened_in_order),
		cmocka_unit_test(mesh_bad_kinds_are_refused),
		cmocka_unit_test(mesh_opened_is_called_and_may_refuse),
		cmocka_unit_test(mesh_addresses_name_fabrics),
		TEST(mesh_peer_on_this_machine_is_reached_by_shm),
		TEST(mesh_socket_that_is_not_there_falls_through),
		TEST(mesh_refusal_is_told),
		TEST(mesh_bad_listen_leaves_nothing),
		TEST(mesh_peer_that_may_not_fence_us_gets_tcp),
		cmocka_unit_test(mesh_in_simulation_is_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
